"""Maximum mean discrepancies as double sums, for the tests of the losses and of the methods that use them."""

import torch


def plain_kernel(rows, factors):
    """1/m sum_u exp(-|a - b|^2 / (f_u s)) of all pairs, s the mean of |a - b|^2 over pairs of different rows."""
    n = len(rows)
    squared = [[sum((rows[i] - rows[j]) ** 2) for j in range(n)] for i in range(n)]
    scale = sum(squared[i][j].item() for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    return [[sum(torch.exp(-d / (f * scale)) for f in factors) / len(factors) for d in line] for line in squared]


def plain_mmd(layers, factors):
    """Gretton et al. 2012, Eq. 3 (unbiased): pairs i != j within a sample, all pairs across; product over layers."""
    n, m = (len(part) for part in layers[0])
    kernels = [plain_kernel(torch.cat(pair), factors) for pair in layers]

    def k(i, j):
        value = 1.0
        for kernel in kernels:
            value = value * kernel[i][j]
        return value

    first, second = range(n), range(n, n + m)
    within_first = sum(k(i, j) for i in first for j in first if i != j) / (n * (n - 1))
    within_second = sum(k(i, j) for i in second for j in second if i != j) / (m * (m - 1))
    across = sum(k(i, j) for i in first for j in second) / (n * m)
    return within_first + within_second - 2 * across
