"""Tables and images: how they are described, encoded as tensors and decoded."""
