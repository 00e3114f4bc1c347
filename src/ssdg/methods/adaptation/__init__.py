"""Domain adaptation methods: labeled source, unlabeled target."""
