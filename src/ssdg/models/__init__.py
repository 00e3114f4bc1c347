"""Networks: backbones, heads, style layers, and wrappers that change gradients or average weights."""
