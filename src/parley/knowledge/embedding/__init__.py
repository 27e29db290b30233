"""Making vectors of texts. Nothing is imported here: numpy and the model are no part of start-up."""
