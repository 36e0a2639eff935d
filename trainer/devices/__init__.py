"""Devices of a training: turns of trainers that share a card, and the parts of a mini-batch on several cards."""
