"""Networks in training to ONNX files."""

from facerts.training.export.from_checkpoint import export_network, export_run

__all__ = ["export_network", "export_run"]
