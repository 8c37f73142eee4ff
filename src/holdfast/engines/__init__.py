"""Running threads on an existing engine. The engine decides when and where; the store keeps all data."""
