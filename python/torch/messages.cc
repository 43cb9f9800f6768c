// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks.
#include "python/torch/arguments.h"
#include "python/torch/backend.h"
#include "python/torch/run.h"

namespace rondo::python {

using c10d::OpType;

Backend::WorkPtr Backend::send(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = only_one(tensors);
  check_root(peer);
  check_tag(tag);
  return run({OpType::SEND, "rondo:send", c10d::kUnsetTimeout, true, tensors, {}},
             {{Flat(tensor, Flat::Use::reads)}},
             [=](Communicator& c, const Operands& with, const OpOptions& options) {
               return c.send(with.in.buffer(), peer, std::uint32_t(tag), options);
             });
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = only_one(tensors);
  check_root(peer);
  check_tag(tag);
  return run({OpType::RECV, "rondo:recv", c10d::kUnsetTimeout, true, tensors, tensors},
             {{{}, Flat(tensor, Flat::Use::writes)}},
             [=](Communicator& c, const Operands& with, const OpOptions& options) {
               return c.receive(with.out.buffer(), peer, std::uint32_t(tag), options);
             });
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = only_one(tensors);
  check_tag(tag);
  return run(
      {OpType::RECVANYSOURCE, "rondo:recvAnySource", c10d::kUnsetTimeout, true, tensors, tensors},
      {{{}, Flat(tensor, Flat::Use::writes)}},
      [=](Communicator& c, const Operands& with, const OpOptions& options) {
        return c.receive_any(with.out.buffer(), std::uint32_t(tag), options);
      });
}

}  // namespace rondo::python
