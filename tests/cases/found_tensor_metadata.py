"""Programs that came out wrong: tensor metadata."""

import torch
from soundness import keep


@keep
def storage_offset(c):
    b = torch.arange(100.0)
    f = c(lambda x: x * x.storage_offset())
    for o in (1, 1, 2, 16, 32):
        yield f(b[o : o + 4])


@keep
def is_leaf(c):
    f = c(lambda x: x * 2 if x.is_leaf else x * 3)
    a = torch.ones(4, requires_grad=True)
    b = torch.ones(4, requires_grad=True) * 1
    yield f(a)
    yield f(a)
    yield f(b)


@keep
def is_view(c):
    f = c(lambda x: x * 2 if x._is_view() else x * 3)
    a = torch.ones(4)
    b = torch.ones(8)[:4]
    yield f(a)
    yield f(a)
    yield f(b)


@keep
def output_nr(c):
    f = c(lambda x: x * (x.output_nr + 1))
    a, b = torch.ones(4, requires_grad=True).mul(1).split(2)
    yield f(a)
    yield f(a)
    yield f(b)


@keep
def grad_read(c):
    f = c(lambda x: x * 2 if x.grad is None else x * x.grad)
    a = torch.ones(4, requires_grad=True)
    yield f(a).detach()
    yield f(a).detach()
    a.sum().backward()
    yield f(a).detach()
    a.grad.mul_(3)
    yield f(a).detach()
    a.grad = torch.ones(4) * 7
    yield f(a).detach()
    a.grad = None
    yield f(a).detach()


@keep
def hooks_read(c):
    f = c(lambda x: x * 2 if not x._backward_hooks else x * 3)
    a = torch.ones(4, requires_grad=True)
    yield f(a).detach()
    yield f(a).detach()
    a.register_hook(lambda g: g)
    yield f(a).detach()


@keep
def is_coalesced(c):
    f = c(lambda x: x.is_coalesced())
    a = torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,))
    yield f(a)
    yield f(a)
    yield f(a.coalesce())


@keep
def sparse_dimensions(c):
    f = c(lambda x: (x.sparse_dim(), x.dense_dim(), torch.empty_like(x).sparse_dim()))
    a = torch.eye(3)
    for made in (a.to_sparse(), a.to_sparse(), a.to_sparse(1), a.to_sparse()):
        yield f(made)


@keep
def compressed_layouts(c):
    f = c(lambda x: (x.to_dense(), x.layout, x.dense_dim()))
    a = torch.eye(4)
    made = [a.to_sparse_csr(), a.to_sparse_csc(), a.to_sparse_bsr((2, 2)), a.to_sparse_bsc((2, 2))]
    made.append(torch.eye(4)[..., None].expand(4, 4, 2).to_sparse_csr(dense_dim=1))
    for each in [*made, *made]:
        yield f(each)[0].tolist(), *f(each)[1:]


@keep
def compressed_inside(c):
    f = c(lambda x: x.to_sparse_csr().crow_indices())
    yield f(torch.eye(3))
    yield f(torch.eye(3))
    yield f(torch.eye(3) * 0)
