"""What commands do: a module for each that is more than a few lines, loaded only when it is given."""
