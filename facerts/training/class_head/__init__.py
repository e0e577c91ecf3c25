"""Class centers, and the softmax over all of them."""
