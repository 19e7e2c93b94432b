"""Past one machine: extraction, matching and evaluation on Ray, photos and shards on any storage."""
