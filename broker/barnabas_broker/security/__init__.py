"""What a principal may do: operations on resources, as Kafka numbers them."""
