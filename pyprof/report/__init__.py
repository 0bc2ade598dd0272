"""What a person reads: reports made from records and their costs."""
