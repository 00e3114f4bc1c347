"""A campaign against `ssdg`: kills, faults and hostile inputs by the thousand, in one table and one JSON file."""
