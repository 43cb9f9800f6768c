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
  Flat flat(tensor, Flat::Use::reads);
  return run(
      {OpType::SEND, "rondo:send", c10d::kUnsetTimeout, true, tensors, {}},
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(c.send(whole(flat.memory()), peer, std::uint32_t(tag), options));
      },
      [flat] {});
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = only_one(tensors);
  check_root(peer);
  check_tag(tag);
  Flat flat(tensor, Flat::Use::writes);
  return run(
      {OpType::RECV, "rondo:recv", c10d::kUnsetTimeout, true, tensors, tensors},
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(c.receive(whole(flat.memory()), peer, std::uint32_t(tag), options));
      },
      [flat]() mutable { flat.copy_back(); });
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = only_one(tensors);
  check_tag(tag);
  Flat flat(tensor, Flat::Use::writes);
  return run(
      {OpType::RECVANYSOURCE, "rondo:recvAnySource", c10d::kUnsetTimeout, true, tensors, tensors},
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(c.receive_any(whole(flat.memory()), std::uint32_t(tag), options));
      },
      [flat]() mutable { flat.copy_back(); });
}

}  // namespace rondo::python
