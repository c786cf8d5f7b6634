"""What a request will cost, told before it runs; so far, the sentence encoder that this needs."""
