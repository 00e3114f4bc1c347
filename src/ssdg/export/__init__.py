"""A trained model as a file for other programs: ONNX or torch.export, checked against torch before it is written."""
