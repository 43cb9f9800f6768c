// SPDX-License-Identifier: Apache-2.0
//
// The collectives of torch's process group. Each checks its tensors, chooses Rondo's operation, and
// gives run() a function that starts it. Flat copies tensors that Rondo cannot take as they lie.
#include <algorithm>
#include <utility>

#include "python/torch/arguments.h"
#include "python/torch/backend.h"
#include "python/torch/run.h"
#include "python/torch/sparse_sum.h"

namespace rondo::python {

using c10d::OpType;

Backend::WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "rondo: all_reduce needs one tensor and got ",
                    tensors.size());
  if (tensors.front().is_sparse()) return allreduce_sparse(tensors, opts);
  const Reduction how = reduction_of(only_one(tensors), opts.reduceOp);
  Flat flat(tensors.front(), Flat::Use::both);
  const Buffer all = whole(flat.memory());
  return run(
      {OpType::ALLREDUCE, "rondo:all_reduce", opts.timeout, opts.asyncOp, tensors, tensors},
      [&](Communicator& c, OpOptions options, Parts& parts) {
        options.input_scale = how.factor;
        parts.push_back(c.all_reduce(all, all, how.op, options));
      },
      [flat]() mutable { flat.copy_back(); });
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& opts) {
  std::vector<Flat> flats;
  std::vector<Reduction> how;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor);
    how.push_back(reduction_of(tensor, opts.reduceOp));
    flats.emplace_back(tensor, Flat::Use::both);
  }
  return run(
      {OpType::ALLREDUCE_COALESCED, "rondo:all_reduce", opts.timeout, opts.asyncOp, tensors,
       tensors},
      [&](Communicator& c, OpOptions options, Parts& parts) {
        for (std::size_t i = 0; i < flats.size(); ++i) {
          const Buffer all = whole(flats[i].memory());
          options.input_scale = how[i].factor;
          parts.push_back(c.all_reduce(all, all, how[i].op, options));
        }
      },
      [flats]() mutable {
        for (Flat& flat : flats) flat.copy_back();
      });
}

Backend::WorkPtr Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK_VALUE(tensors.size() == 1 && tensors.front().is_sparse(),
                    "rondo: all_reduce of sparse tensors needs one sparse COO tensor");
  TORCH_CHECK_VALUE(opts.reduceOp.op_ == c10d::ReduceOp::SUM,
                    "rondo: all_reduce of sparse tensors can only sum");
  TORCH_CHECK_VALUE(tensors.front().is_cpu(), "rondo: a sparse tensor is on ",
                    tensors.front().device(), ": sums of sparse tensors need them on the CPU");
  const auto sum = std::make_shared<SparseSum>(tensors.front(), getRank(), getSize(), sparse_++);
  Call call{OpType::_ALLREDUCE_SPARSE,
            "rondo:sparse_all_reduce",
            opts.timeout,
            opts.asyncOp,
            tensors,
            tensors};
  call.after_waits = true;
  const auto until = std::chrono::steady_clock::now() + options_of(call).deadline;
  return run(
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
  Flat flat(tensor, here ? Flat::Use::both : Flat::Use::reads);
  const Buffer all = whole(flat.memory());
  return run(
      {OpType::REDUCE, "rondo:reduce", opts.timeout, opts.asyncOp, tensors, tensors},
      [&](Communicator& c, OpOptions options, Parts& parts) {
        options.input_scale = how.factor;
        parts.push_back(c.reduce(all, here ? all : Buffer{}, how.op, int(opts.rootRank), options));
      },
      [flat]() mutable { flat.copy_back(); });
}

Backend::WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const at::Tensor& tensor = only_one(tensors);
  check_root(opts.rootRank);
  Flat flat(tensor, opts.rootRank == getRank() ? Flat::Use::reads : Flat::Use::writes);
  const Buffer all = whole(flat.memory());
  return run(
      {OpType::BROADCAST, "rondo:broadcast", opts.timeout, opts.asyncOp, tensors, tensors},
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(c.broadcast(all, all, int(opts.rootRank), options));
      },
      [flat]() mutable { flat.copy_back(); });
}

Backend::WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& opts) {
  const at::Tensor& input = only_one(inputs);
  TORCH_CHECK_VALUE(outputs.size() == 1 && outputs.front().size() == size_cast(getSize()),
                    "rondo: all_gather needs a list of ", getSize(), " outputs");
  Flat in(input, Flat::Use::reads);
  FlatList out(outputs.front(), Flat::Use::writes);
  check_block(input, outputs.front()[size_cast(getRank())]);
  const std::vector<std::size_t> counts = block_counts(out);
  return run(
      {OpType::ALLGATHER, "rondo:all_gather", opts.timeout, opts.asyncOp, inputs, outputs.front()},
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        const Buffer from = whole(in.memory()), to = whole(out.memory());
        parts.push_back(out.even() ? c.all_gather(from, to, options)
                                   : c.all_gather_v(from, to, counts, options));
      },
      [in, out]() mutable { out.copy_back(); });
}

Backend::WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
  TORCH_CHECK_VALUE(outputs.size() == size_cast(getSize()), "rondo: all_gather_coalesced needs ",
                    getSize(), " lists of outputs");
  std::vector<Flat> ins;
  std::vector<FlatList> outs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors blocks;
    for (const Tensors& of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size(),
                        "rondo: each list of outputs needs one tensor for each input");
      blocks.push_back(of_rank[i]);
    }
    check_block(inputs[i], blocks[size_cast(getRank())]);
    ins.emplace_back(inputs[i], Flat::Use::reads);
    outs.emplace_back(blocks, Flat::Use::writes);
  }
  Tensors all;
  for (const Tensors& of_rank : outputs) all.insert(all.end(), of_rank.begin(), of_rank.end());
  return run(
      {OpType::ALLGATHER_COALESCED, "rondo:all_gather", opts.timeout, opts.asyncOp, inputs, all},
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        for (std::size_t i = 0; i < ins.size(); ++i) {
          const Buffer from = whole(ins[i].memory()), to = whole(outs[i].memory());
          parts.push_back(outs[i].even()
                              ? c.all_gather(from, to, options)
                              : c.all_gather_v(from, to, block_counts(outs[i]), options));
        }
      },
      [ins, outs]() mutable {
        for (FlatList& out : outs) out.copy_back();
      });
}

Backend::WorkPtr Backend::all_gather_single(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& opts) {
  Tensors outputs{output}, inputs{input};
  return gather_all(outputs, inputs, OpType::_ALLGATHER_BASE, opts);
}

Backend::WorkPtr Backend::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  return gather_all(outputs, inputs, OpType::ALLGATHER_INTO_TENSOR_COALESCED, opts);
}

Backend::WorkPtr Backend::gather_all(Tensors& outputs, Tensors& inputs, OpType type,
                                     const c10d::AllgatherOptions& opts) {
  check_pairs(outputs, inputs, getSize(), "all_gather_into_tensor", "output", "input");
  std::vector<Flat> ins, outs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ins.emplace_back(inputs[i], Flat::Use::reads);
    outs.emplace_back(outputs[i], Flat::Use::writes);
  }
  return run(
      {type, "rondo:_all_gather_base", opts.timeout, opts.asyncOp, inputs, outputs},
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        for (std::size_t i = 0; i < ins.size(); ++i)
          parts.push_back(c.all_gather(whole(ins[i].memory()), whole(outs[i].memory()), options));
      },
      [ins, outs]() mutable {
        for (Flat& out : outs) out.copy_back();
      });
}

Backend::WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& opts) {
  const at::Tensor& input = only_one(inputs);
  check_root(opts.rootRank);
  const bool here = opts.rootRank == getRank();
  Flat in(input, Flat::Use::reads);
  FlatList out;
  if (here) {
    TORCH_CHECK_VALUE(outputs.size() == 1 && outputs.front().size() == size_cast(getSize()),
                      "rondo: gather needs a list of ", getSize(), " outputs on its root");
    for (const at::Tensor& block : outputs.front()) check_block(input, block);
    out = FlatList(outputs.front(), Flat::Use::writes);
  } else {
    TORCH_CHECK_VALUE(outputs.empty() || outputs.front().empty(),
                      "rondo: gather takes outputs on its root only");
  }
  return run(
      {OpType::GATHER, "rondo:gather", opts.timeout, opts.asyncOp, inputs,
       here ? outputs.front() : Tensors{}},
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(c.gather(whole(in.memory()), here ? whole(out.memory()) : Buffer{},
                                 int(opts.rootRank), options));
      },
      [in, out]() mutable { out.copy_back(); });
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
  Flat in(input, Flat::Use::reads), out;
  if (here) out = Flat(output, Flat::Use::writes);
  return run(
      {OpType::GATHER,
       "rondo:gather",
       opts.timeout,
       opts.asyncOp,
       {input},
       here ? Tensors{output} : Tensors{}},
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(c.gather(whole(in.memory()), here ? whole(out.memory()) : Buffer{},
                                 int(opts.rootRank), options));
      },
      [in, out]() mutable { out.copy_back(); });
}

Backend::WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                  const c10d::ScatterOptions& opts) {
  const at::Tensor& output = only_one(outputs);
  check_root(opts.rootRank);
  const bool here = opts.rootRank == getRank();
  Flat out(output, Flat::Use::writes);
  FlatList in;
  if (here) {
    TORCH_CHECK_VALUE(inputs.size() == 1 && inputs.front().size() == size_cast(getSize()),
                      "rondo: scatter needs a list of ", getSize(), " inputs on its root");
    for (const at::Tensor& block : inputs.front()) check_block(output, block);
    in = FlatList(inputs.front(), Flat::Use::reads);
  } else {
    TORCH_CHECK_VALUE(inputs.empty() || inputs.front().empty(),
                      "rondo: scatter takes inputs on its root only");
  }
  return run(
      {OpType::SCATTER, "rondo:scatter", opts.timeout, opts.asyncOp,
       here ? inputs.front() : Tensors{}, outputs},
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(c.scatter(here ? whole(in.memory()) : Buffer{}, whole(out.memory()),
                                  int(opts.rootRank), options));
      },
      [in, out]() mutable { out.copy_back(); });
}

Backend::WorkPtr Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         const c10d::ReduceScatterOptions& opts) {
  const at::Tensor& output = only_one(outputs);
  TORCH_CHECK_VALUE(inputs.size() == 1 && inputs.front().size() == size_cast(getSize()),
                    "rondo: reduce_scatter needs a list of ", getSize(), " inputs");
  const Reduction how = reduction_of(output, opts.reduceOp);
  check_block(output, inputs.front()[size_cast(getRank())]);
  Flat out(output, Flat::Use::writes);
  FlatList in(inputs.front(), Flat::Use::reads);
  return run(
      {OpType::REDUCE_SCATTER, "rondo:reduce_scatter", opts.timeout, opts.asyncOp, inputs.front(),
       outputs},
      [&](Communicator& c, OpOptions options, Parts& parts) {
        options.input_scale = how.factor;
        const Buffer from = whole(in.memory()), to = whole(out.memory());
        parts.push_back(in.even()
                            ? c.reduce_scatter(from, to, how.op, options)
                            : c.reduce_scatter_v(from, to, block_counts(in), how.op, options));
      },
      [in, out]() mutable { out.copy_back(); });
}

Backend::WorkPtr Backend::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output}, inputs{input};
  return scatter_sums(outputs, inputs, OpType::_REDUCE_SCATTER_BASE, opts);
}

Backend::WorkPtr Backend::reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& opts) {
  return scatter_sums(outputs, inputs, OpType::REDUCE_SCATTER_TENSOR_COALESCED, opts);
}

Backend::WorkPtr Backend::scatter_sums(Tensors& outputs, Tensors& inputs, OpType type,
                                       const c10d::ReduceScatterOptions& opts) {
  check_pairs(inputs, outputs, getSize(), "reduce_scatter_tensor", "input", "output");
  std::vector<Flat> ins, outs;
  std::vector<Reduction> how;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    how.push_back(reduction_of(outputs[i], opts.reduceOp));
    ins.emplace_back(inputs[i], Flat::Use::reads);
    outs.emplace_back(outputs[i], Flat::Use::writes);
  }
  return run(
      {type, "rondo:_reduce_scatter_base", opts.timeout, opts.asyncOp, inputs, outputs},
      [&](Communicator& c, OpOptions options, Parts& parts) {
        for (std::size_t i = 0; i < ins.size(); ++i) {
          options.input_scale = how[i].factor;
          parts.push_back(c.reduce_scatter(whole(ins[i].memory()), whole(outs[i].memory()),
                                           how[i].op, options));
        }
      },
      [ins, outs]() mutable {
        for (Flat& out : outs) out.copy_back();
      });
}

// Always by messages: no single rank knows whether all parts are even.
Backend::WorkPtr Backend::all_to_all_single(at::Tensor& output, at::Tensor& input,
                                            std::vector<std::int64_t>& output_splits,
                                            std::vector<std::int64_t>& input_splits,
                                            const c10d::AllToAllOptions& opts) {
  check_tensor(input);
  check_tensor(output);
  Flat in(input, Flat::Use::reads), out(output, Flat::Use::writes);
  const std::vector<std::size_t> sent = split_counts(input, input_splits, getSize(), "input"),
                                 received =
                                     split_counts(output, output_splits, getSize(), "output");
  return run(
      {OpType::ALLTOALL_BASE, "rondo:all_to_all", opts.timeout, opts.asyncOp, {input}, {output}},
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(
            c.all_to_all_v(whole(in.memory()), sent, whole(out.memory()), received, options));
      },
      [in, out]() mutable { out.copy_back(); });
}

Backend::WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& opts) {
  for (const Tensors* const list : {&inputs, &outputs})
    TORCH_CHECK_VALUE(list->size() == size_cast(getSize()), "rondo: all_to_all needs ", getSize(),
                      " inputs and as many outputs");
  FlatList in(inputs, Flat::Use::reads), out(outputs, Flat::Use::writes);
  return run(
      {OpType::ALLTOALL, "rondo:all_to_all", opts.timeout, opts.asyncOp, inputs, outputs},
      [&](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(c.all_to_all_v(whole(in.memory()), block_counts(in), whole(out.memory()),
                                       block_counts(out), options));
      },
      [in, out]() mutable { out.copy_back(); });
}

// Like gloo's barrier, also waits for the collectives that this rank has started before. The
// current stream comes after the copies into their tensors.
Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& opts) {
  Call call{OpType::BARRIER, "rondo:barrier", opts.timeout, opts.asyncOp, {}, {}};
  const auto before = started();
  call.after_waits = !before.empty();
  call.after_all = true;
  return run(
      call,
      [](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(c.barrier(options));
      },
      [before] {
        for (const auto& work : before) work->wait_for_operations();
      });
}

}  // namespace rondo::python
