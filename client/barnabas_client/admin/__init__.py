"""The admin client: topics, configurations, groups."""
