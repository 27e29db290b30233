"""One module a resource: translate, call one use case, translate."""
