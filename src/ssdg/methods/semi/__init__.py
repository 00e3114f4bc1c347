"""Semi-supervised methods: labeled and unlabeled images, domains ignored."""
