"""Tables and images: what they hold, and how they become tensors and back."""
