"""EID (Lin et al.): adversarial pseudo labeling, dual calibrative generalization, evolving intermediate domain."""
