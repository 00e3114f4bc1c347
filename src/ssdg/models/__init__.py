"""Networks: backbones, heads, and layers that train in a special way."""
