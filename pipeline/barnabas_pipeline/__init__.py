"""The data pipeline on Spark: a source and a sink without jars, and programs over them."""
