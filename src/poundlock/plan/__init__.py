"""How Spark runs a job: the graph cut into stages, the stages as one DataFrame, and the text that explains them."""
