"""Export of trained models to ONNX or torch.export files, checked against torch before they are written."""
