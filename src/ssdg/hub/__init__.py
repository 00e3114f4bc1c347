"""Files that others publish: data sets and weights, downloaded, checked, unpacked and laid out."""
