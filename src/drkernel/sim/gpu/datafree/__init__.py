"""A device without data: storages are addresses, operators propagate shapes, kernels run as skeletons."""
