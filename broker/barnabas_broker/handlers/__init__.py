"""One module per family of APIs. A handler translates between messages and services and holds no state."""
