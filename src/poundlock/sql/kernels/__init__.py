"""What Arrow's own functions have not, over whole columns: decimals as Flink rounds them, texts of values and values of texts."""
