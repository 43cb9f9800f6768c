// SPDX-License-Identifier: Apache-2.0
//
// The collectives of torch's process group. Each checks its tensors and gives run() its operands,
// with a function that starts Rondo's operation. Flat copies tensors that Rondo cannot take as they
// lie.
#include <utility>

#include "python/torch/arguments.h"
#include "python/torch/backend.h"
#include "python/torch/run.h"
#include "python/torch/sparse_sum.h"

namespace rondo::python {

using c10d::OpType;

namespace {

constexpr auto all_reduce_of = [](Communicator& c, const Operands& with, const OpOptions& options) {
  const Buffer all = with.out.buffer();
  return c.all_reduce(all, all, with.how.op, options);
};
// Blocks of a list may be of different sizes.
constexpr auto all_gather_of = [](Communicator& c, const Operands& with, const OpOptions& options) {
  const Buffer in = with.in.buffer(), out = with.out.buffer();
  return with.out.even() ? c.all_gather(in, out, options)
                         : c.all_gather_v(in, out, with.out.counts(), options);
};
constexpr auto reduce_scatter_of = [](Communicator& c, const Operands& with,
                                      const OpOptions& options) {
  const Buffer in = with.in.buffer(), out = with.out.buffer();
  return with.in.even() ? c.reduce_scatter(in, out, with.how.op, options)
                        : c.reduce_scatter_v(in, out, with.in.counts(), with.how.op, options);
};
auto gather_on(std::int64_t root) {
  return [root](Communicator& c, const Operands& with, const OpOptions& options) {
    return c.gather(with.in.buffer(), with.out.buffer(), int(root), options);
  };
}

std::vector<Operands> in_place(const Tensors& tensors, const c10d::ReduceOp& op) {
  std::vector<Operands> all;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor);
    all.push_back({{}, Flat(tensor, Flat::Use::both), reduction_of(tensor, op)});
  }
  return all;
}

// Each output holds a block of each rank.
std::vector<Operands> gathered(const Tensors& outputs, const Tensors& inputs, int size) {
  check_pairs(outputs, inputs, size, "all_gather_into_tensor", "output", "input");
  std::vector<Operands> all;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    all.push_back({Flat(inputs[i], Flat::Use::reads), Flat(outputs[i], Flat::Use::writes)});
  return all;
}

// Each input holds a block for each rank.
std::vector<Operands> scattered(const Tensors& outputs, const Tensors& inputs, int size,
                                const c10d::ReduceOp& op) {
  check_pairs(inputs, outputs, size, "reduce_scatter_tensor", "input", "output");
  std::vector<Operands> all;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Reduction how = reduction_of(outputs[i], op);
    all.push_back({Flat(inputs[i], Flat::Use::reads), Flat(outputs[i], Flat::Use::writes), how});
  }
  return all;
}

// The blocks of all ranks on the root, of which each has as many elements as `block`. Nothing
// elsewhere. what: "outputs".
Flat blocks_on_root(const std::vector<Tensors>& lists, const at::Tensor& block, bool here, int size,
                    Flat::Use use, const char* name, const char* what) {
  if (!here) {
    TORCH_CHECK_VALUE(lists.empty() || lists.front().empty(), "rondo: ", name, " takes ", what,
                      " on its root only");
    return {};
  }
  TORCH_CHECK_VALUE(lists.size() == 1 && lists.front().size() == size_cast(size), "rondo: ", name,
                    " needs a list of ", size, " ", what, " on its root");
  for (const at::Tensor& each : lists.front()) check_block(block, each);
  return {lists.front(), use};
}

}  // namespace

Backend::WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "rondo: all_reduce needs one tensor and got ",
                    tensors.size());
  if (tensors.front().is_sparse()) return allreduce_sparse(tensors, opts);
  return run({OpType::ALLREDUCE, "rondo:all_reduce", opts.timeout, opts.asyncOp, tensors, tensors},
             in_place(tensors, opts.reduceOp), all_reduce_of);
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& opts) {
  return run({OpType::ALLREDUCE_COALESCED, "rondo:all_reduce", opts.timeout, opts.asyncOp, tensors,
              tensors},
             in_place(tensors, opts.reduceOp), all_reduce_of);
}

Backend::WorkPtr Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK_VALUE(tensors.size() == 1 && tensors.front().is_sparse(),
                    "rondo: all_reduce of sparse tensors needs one sparse COO tensor");
  TORCH_CHECK_VALUE(opts.reduceOp.op_ == c10d::ReduceOp::SUM,
                    "rondo: all_reduce of sparse tensors can only sum");
  TORCH_CHECK_VALUE(tensors.front().is_cpu(), "rondo: a sparse tensor is on ",
                    tensors.front().device(), ": sums of sparse tensors need them on the CPU");
  const auto sum = std::make_shared<SparseSum>(tensors.front(), getRank(), getSize(), sparse_++);
  GroupCall call{OpType::_ALLREDUCE_SPARSE,
                 "rondo:sparse_all_reduce",
                 opts.timeout,
                 opts.asyncOp,
                 tensors,
                 tensors};
  call.after_waits = true;
  const auto until = std::chrono::steady_clock::now() + options_of(call).deadline;
  return run_parts(
      call,
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(sum->start(c, options));
      },
      [sum, session = session_, until] { sum->finish(*session, until); });
}

Backend::WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const at::Tensor& tensor = only_one(tensors);
  check_root(opts.rootRank);
  const Reduction how = reduction_of(tensor, opts.reduceOp);
  const bool here = opts.rootRank == getRank();
  return run({OpType::REDUCE, "rondo:reduce", opts.timeout, opts.asyncOp, tensors, tensors},
             {{{}, Flat(tensor, here ? Flat::Use::both : Flat::Use::reads), how}},
             [&](Communicator& c, const Operands& with, const OpOptions& options) {
               const Buffer all = with.out.buffer();
               return c.reduce(all, here ? all : Buffer{}, how.op, int(opts.rootRank), options);
             });
}

Backend::WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const at::Tensor& tensor = only_one(tensors);
  check_root(opts.rootRank);
  const auto use = opts.rootRank == getRank() ? Flat::Use::reads : Flat::Use::writes;
  return run({OpType::BROADCAST, "rondo:broadcast", opts.timeout, opts.asyncOp, tensors, tensors},
             {{{}, Flat(tensor, use)}},
             [&](Communicator& c, const Operands& with, const OpOptions& options) {
               const Buffer all = with.out.buffer();
               return c.broadcast(all, all, int(opts.rootRank), options);
             });
}

Backend::WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& opts) {
  const at::Tensor& input = only_one(inputs);
  TORCH_CHECK_VALUE(outputs.size() == 1 && outputs.front().size() == size_cast(getSize()),
                    "rondo: all_gather needs a list of ", getSize(), " outputs");
  Operands with{Flat(input, Flat::Use::reads), Flat(outputs.front(), Flat::Use::writes)};
  check_block(input, outputs.front()[size_cast(getRank())]);
  return run(
      {OpType::ALLGATHER, "rondo:all_gather", opts.timeout, opts.asyncOp, inputs, outputs.front()},
      {std::move(with)}, all_gather_of);
}

Backend::WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
  TORCH_CHECK_VALUE(outputs.size() == size_cast(getSize()), "rondo: all_gather_coalesced needs ",
                    getSize(), " lists of outputs");
  Tensors all;
  for (const Tensors& of_rank : outputs) {
    TORCH_CHECK_VALUE(of_rank.size() == inputs.size(),
                      "rondo: each list of outputs needs one tensor for each input");
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  std::vector<Operands> operands;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors blocks;
    for (const Tensors& of_rank : outputs) blocks.push_back(of_rank[i]);
    check_block(inputs[i], blocks[size_cast(getRank())]);
    operands.push_back({Flat(inputs[i], Flat::Use::reads), Flat(blocks, Flat::Use::writes)});
  }
  return run(
      {OpType::ALLGATHER_COALESCED, "rondo:all_gather", opts.timeout, opts.asyncOp, inputs, all},
      std::move(operands), all_gather_of);
}

Backend::WorkPtr Backend::all_gather_single(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& opts) {
  const Tensors outputs{output}, inputs{input};
  return run({OpType::_ALLGATHER_BASE, "rondo:_all_gather_base", opts.timeout, opts.asyncOp, inputs,
              outputs},
             gathered(outputs, inputs, getSize()), all_gather_of);
}

Backend::WorkPtr Backend::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  return run({OpType::ALLGATHER_INTO_TENSOR_COALESCED, "rondo:_all_gather_base", opts.timeout,
              opts.asyncOp, inputs, outputs},
             gathered(outputs, inputs, getSize()), all_gather_of);
}

Backend::WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& opts) {
  const at::Tensor& input = only_one(inputs);
  check_root(opts.rootRank);
  const bool here = opts.rootRank == getRank();
  Flat out =
      blocks_on_root(outputs, input, here, getSize(), Flat::Use::writes, "gather", "outputs");
  return run({OpType::GATHER, "rondo:gather", opts.timeout, opts.asyncOp, inputs,
              here ? outputs.front() : Tensors{}},
             {{Flat(input, Flat::Use::reads), std::move(out)}}, gather_on(opts.rootRank));
}

Backend::WorkPtr Backend::gather_single(at::Tensor& output, at::Tensor& input,
                                        const c10d::GatherOptions& opts) {
  check_root(opts.rootRank);
  check_tensor(input);
  const bool here = opts.rootRank == getRank();
  if (here)
    TORCH_CHECK_VALUE(output.numel() == input.numel() * getSize(),
                      "rondo: the output of gather needs ", input.numel() * getSize(),
                      " elements and has ", output.numel());
  Operands with{Flat(input, Flat::Use::reads)};
  if (here) with.out = Flat(output, Flat::Use::writes);
  return run({OpType::GATHER,
              "rondo:gather",
              opts.timeout,
              opts.asyncOp,
              {input},
              here ? Tensors{output} : Tensors{}},
             {std::move(with)}, gather_on(opts.rootRank));
}

Backend::WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                  const c10d::ScatterOptions& opts) {
  const at::Tensor& output = only_one(outputs);
  check_root(opts.rootRank);
  const bool here = opts.rootRank == getRank();
  Flat in = blocks_on_root(inputs, output, here, getSize(), Flat::Use::reads, "scatter", "inputs");
  return run({OpType::SCATTER, "rondo:scatter", opts.timeout, opts.asyncOp,
              here ? inputs.front() : Tensors{}, outputs},
             {{std::move(in), Flat(output, Flat::Use::writes)}},
             [&](Communicator& c, const Operands& with, const OpOptions& options) {
               return c.scatter(with.in.buffer(), with.out.buffer(), int(opts.rootRank), options);
             });
}

Backend::WorkPtr Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         const c10d::ReduceScatterOptions& opts) {
  const at::Tensor& output = only_one(outputs);
  TORCH_CHECK_VALUE(inputs.size() == 1 && inputs.front().size() == size_cast(getSize()),
                    "rondo: reduce_scatter needs a list of ", getSize(), " inputs");
  const Reduction how = reduction_of(output, opts.reduceOp);
  check_block(output, inputs.front()[size_cast(getRank())]);
  return run({OpType::REDUCE_SCATTER, "rondo:reduce_scatter", opts.timeout, opts.asyncOp,
              inputs.front(), outputs},
             {{Flat(inputs.front(), Flat::Use::reads), Flat(output, Flat::Use::writes), how}},
             reduce_scatter_of);
}

Backend::WorkPtr Backend::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& opts) {
  const Tensors outputs{output}, inputs{input};
  return run({OpType::_REDUCE_SCATTER_BASE, "rondo:_reduce_scatter_base", opts.timeout,
              opts.asyncOp, inputs, outputs},
             scattered(outputs, inputs, getSize(), opts.reduceOp), reduce_scatter_of);
}

Backend::WorkPtr Backend::reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& opts) {
  return run({OpType::REDUCE_SCATTER_TENSOR_COALESCED, "rondo:_reduce_scatter_base", opts.timeout,
              opts.asyncOp, inputs, outputs},
             scattered(outputs, inputs, getSize(), opts.reduceOp), reduce_scatter_of);
}

// Always by messages: no single rank knows whether all parts are even.
Backend::WorkPtr Backend::all_to_all_single(at::Tensor& output, at::Tensor& input,
                                            std::vector<std::int64_t>& output_splits,
                                            std::vector<std::int64_t>& input_splits,
                                            const c10d::AllToAllOptions& opts) {
  Operands with{Flat(input, Flat::Use::reads), Flat(output, Flat::Use::writes)};
  const auto sent = split_counts(input, input_splits, getSize(), "input"),
             received = split_counts(output, output_splits, getSize(), "output");
  return run(
      {OpType::ALLTOALL_BASE, "rondo:all_to_all", opts.timeout, opts.asyncOp, {input}, {output}},
      {std::move(with)}, [&](Communicator& c, const Operands& each, const OpOptions& options) {
        return c.all_to_all_v(each.in.buffer(), sent, each.out.buffer(), received, options);
      });
}

Backend::WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& opts) {
  for (const Tensors* const list : {&inputs, &outputs})
    TORCH_CHECK_VALUE(list->size() == size_cast(getSize()), "rondo: all_to_all needs ", getSize(),
                      " inputs and as many outputs");
  return run({OpType::ALLTOALL, "rondo:all_to_all", opts.timeout, opts.asyncOp, inputs, outputs},
             {{Flat(inputs, Flat::Use::reads), Flat(outputs, Flat::Use::writes)}},
             [](Communicator& c, const Operands& with, const OpOptions& options) {
               return c.all_to_all_v(with.in.buffer(), with.in.counts(), with.out.buffer(),
                                     with.out.counts(), options);
             });
}

// Like gloo's barrier, also waits for the collectives that this rank has started before. The
// current stream comes after the copies into their tensors.
Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& opts) {
  GroupCall call{OpType::BARRIER, "rondo:barrier", opts.timeout, opts.asyncOp, {}, {}};
  const auto before = started();
  call.after_waits = !before.empty();
  call.after_all = true;
  return run_parts(
      call,
      [](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(c.barrier(options));
      },
      [before] {
        for (const auto& work : before) work->wait_for_operations();
      });
}

}  // namespace rondo::python
