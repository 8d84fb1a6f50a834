"""The mind at work: sessions that keep their memory, and the loop that turns their logits into text."""
