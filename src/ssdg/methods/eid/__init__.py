"""The cycle of Lin et al.: adversarial pseudo labeling, dual calibrative generalization, intermediate domain."""
