// SPDX-License-Identifier: Apache-2.0
//
// The one source that includes torch: its headers take 15 seconds and a gigabyte to compile.
#include "python/torch/backend.h"

#include <openssl/rand.h>
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "python/torch/batch_norm.h"
#include "python/torch/monitored_barrier.h"
#include "python/torch/several_works.h"
#include "python/torch/sparse_sum.h"
#include "python/torch/store.h"

namespace rondo::python {

namespace {

using c10d::OpType;
using std::chrono::milliseconds;

constexpr milliseconds longest = std::chrono::hours{24 * 365};

// A secret of the job, so that ranks on several hosts can join. As safe as torch's store, which has
// no authentication; RONDO_SECRET comes first.
std::string secret_of(TorchStore& store, int rank, milliseconds timeout) {
  for (const char* const name : {"RONDO_SECRET", "RONDO_SECRET_FILE"})
    if (const char* const value = std::getenv(name); value != nullptr && *value != '\0') return {};
  constexpr const char* key = "rondo-secret";
  if (rank != 0) return store.get(key, std::chrono::steady_clock::now() + timeout);
  std::array<unsigned char, 32> random{};
  TORCH_CHECK(::RAND_bytes(random.data(), static_cast<int>(random.size())) == 1,
              "rondo: OpenSSL has no random bytes for the secret of the job");
  std::string secret;
  for (const unsigned char byte : random)
    for (const int digit : {byte >> 4, byte & 15}) secret += "0123456789abcdef"[digit];
  store.put(key, secret);
  return secret;
}

// "" where the ranks of the group are those of the job.
std::string describe_group(const std::string& group, const std::vector<std::int64_t>& ranks) {
  bool same = true;
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    same = same && ranks[i] == static_cast<std::int64_t>(i);
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (same) return {};
  return " [process group " + group + ": ranks from 0 on are global ranks " + text + "]";
}

std::size_t size_cast(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

// Elements of Rondo's type in one element of torch's: two for complex128.
std::size_t elements_each(const at::Tensor& tensor) {
  return size_cast(tensor.element_size()) / size_of(moved_type(tensor));
}

std::vector<std::size_t> block_counts(const FlatList& list) {
  std::vector<std::size_t> counts = list.counts();
  for (std::size_t& count : counts) count *= elements_each(list.memory());
  return counts;
}

// Elements of one row, also where there is none.
std::size_t row_elements(const at::Tensor& tensor) {
  std::size_t count = elements_each(tensor);
  for (std::int64_t i = 1; i < tensor.dim(); ++i) count *= size_cast(tensor.size(i));
  return count;
}

void check_block(const at::Tensor& whole, const at::Tensor& block) {
  check_tensor(block);
  TORCH_CHECK_VALUE(block.numel() == whole.numel() && block.scalar_type() == whole.scalar_type(),
                    "rondo: a tensor of ", block.numel(), " ", c10::toString(block.scalar_type()),
                    " stands where ", whole.numel(), " ", c10::toString(whole.scalar_type()),
                    " are needed");
}

// Each large tensor has the elements of `size` small ones.
void check_pairs(const Tensors& large, const Tensors& small, int size, const char* name,
                 const char* large_name, const char* small_name) {
  TORCH_CHECK_VALUE(large.size() == small.size(), "rondo: ", name,
                    " needs as many inputs as outputs");
  for (std::size_t i = 0; i < large.size(); ++i) {
    check_tensor(large[i]);
    check_tensor(small[i]);
    TORCH_CHECK_VALUE(large[i].numel() == small[i].numel() * size &&
                          large[i].scalar_type() == small[i].scalar_type(),
                      "rondo: the ", large_name, " tensor of ", name, " must have ", size,
                      " times the elements of the ", small_name, " tensor, and its type; it has ",
                      large[i].numel(), " ", c10::toString(large[i].scalar_type()), ", the other ",
                      small[i].numel(), " ", c10::toString(small[i].scalar_type()));
  }
}

// Elements for each rank, from rows for each rank. No splits: the rows are divided evenly.
std::vector<std::size_t> split_counts(const at::Tensor& tensor,
                                      const std::vector<std::int64_t>& splits, int size,
                                      const char* name) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::size_t row = row_elements(tensor);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "rondo: the ", name, " of all_to_all has ", rows,
                      " rows, which ", size, " ranks cannot share evenly: give split sizes");
    return std::vector<std::size_t>(size_cast(size), size_cast(rows / size) * row);
  }
  TORCH_CHECK_VALUE(splits.size() == size_cast(size), "rondo: all_to_all needs ", size, " ", name,
                    " split sizes and got ", splits.size());
  std::vector<std::size_t> counts;
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "rondo: a split size of all_to_all is ", split);
    counts.push_back(size_cast(split) * row);
    sum += split;
  }
  TORCH_CHECK_VALUE(sum == rows, "rondo: the ", name, " split sizes of all_to_all sum to ", sum,
                    ", but the tensor has ", rows, " rows");
  return counts;
}

void check_tag(int tag) {
  TORCH_CHECK_VALUE(tag >= 0, "rondo: the tag ", tag, " is negative");
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> Backend::create(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                  int size, milliseconds timeout,
                                                  const std::string& group,
                                                  const std::vector<std::int64_t>& global_ranks) {
  const std::string who = describe_group(group, global_ranks);
  try {
    TorchStore meeting(store);
    rondo::Options options;
    options.rank = rank;
    options.size = size;
    options.store = &meeting;
    options.connect_deadline = options.deadline = std::clamp(timeout, milliseconds{1}, longest);
    if (size > 1) options.secret = secret_of(meeting, rank, options.connect_deadline);
    auto session = GroupSession::open(Communicator::connect(options), who);
    return c10::make_intrusive<Backend>(std::move(store), rank, size, timeout, std::move(session));
  } catch (const Error& error) {
    TORCH_CHECK_WITH(DistBackendError, false, "rondo: ", error.what(), who);
  }
}

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Milliseconds timeout,
                 std::shared_ptr<GroupSession> session)
    : c10d::Backend(rank, size),
      store_(std::move(store)),
      options_(c10::make_intrusive<Options>(timeout)),
      session_(std::move(session)) {
  init();
}

// Python frees it with its lock held, for which the threads that end here may wait.
Backend::~Backend() {
  std::optional<py::gil_scoped_release> others_run;
  if (!session_->closed() && ::PyGILState_Check() != 0) others_run.emplace();
  session_->close();
}

c10::intrusive_ptr<c10d::Backend> Backend::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  const auto own = std::ranges::find(ranks, getRank());
  if (own == ranks.end()) return nullptr;
  std::vector<std::int64_t> global(opts->global_ranks_in_group.begin(),
                                   opts->global_ranks_in_group.end());
  if (global.empty()) global.assign(ranks.begin(), ranks.end());
  return create(store, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
                opts->timeout, opts->group_name, global);
}

// Memory that ranks of one host reach directly. It may outlive the group. Ordinary memory where
// there is no more of it: operations then copy.
at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK_VALUE(size >= 0, "rondo: a tensor of ", size, " elements cannot be");
  const std::size_t bytes = size_cast(size) * options.dtype().itemsize();
  const auto memory = session_->use([&](Communicator& communicator) -> std::shared_ptr<Memory> {
    try {
      return std::make_shared<Memory>(communicator.allocate(bytes));
    } catch (const Error& error) {
      if (error.code() != Errc::system) throw;
      TORCH_WARN_ONCE("rondo: ", bytes, " bytes come from ordinary memory: ", error.what());
      return nullptr;
    }
  });
  if (!memory) return at::empty({size}, options);
  return at::from_blob(
      memory->data(), {size}, [memory](void*) {}, options);
}

// Running calls.

OpOptions Backend::options_of(const Call& call) const {
  OpOptions options;
  const Milliseconds time = call.timeout == c10d::kUnsetTimeout ? options_->timeout : call.timeout;
  options.deadline = std::clamp(time, Milliseconds{1}, longest);
  return options;
}

template <class Start, class After>
Backend::WorkPtr Backend::run(const Call& call, const Start& start, After after) {
  ++sequence_;
  const OpOptions options = options_of(call);
  const auto pending = [&](Milliseconds timeout) {
    session_->prepare_finish();
    return c10::make_intrusive<PendingWork>(session_, getRank(), call.type, call.title, call.inputs,
                                            call.outputs, sequence_, timeout, call.after_waits);
  };
  const bool lean = !call.async && !coalescing_ && !at::hasCallbacks();
  c10::intrusive_ptr<PendingWork> work;
  if (!lean) work = pending(options.deadline);
  Parts parts;
  try {
    session_->start([&](Communicator& communicator) { start(communicator, options, parts); });
  } catch (...) {
    // Those that have started go on and use their memory.
    if (!parts.empty()) pending(options.deadline)->begin(std::move(parts), [after] {});
    throw;
  }
  if (lean) {
    session_->await_all(parts);
    const at::NoGradGuard no_gradient;
    after();
    return nullptr;
  }
  work->begin(std::move(parts), std::move(after));
  remember(work);
  if (coalescing_)
    coalesced_.push_back(work);
  else if (!call.async)
    work->wait(kNoTimeout);
  return work;
}

void Backend::check_root(std::int64_t root) const {
  TORCH_CHECK_VALUE(root >= 0 && root < getSize(), "rondo: there is no rank ", root,
                    " in this group: ranks go from 0 to ", getSize() - 1);
}

// Only barriers ask for them, so those that have ended are dropped now and then.
void Backend::remember(const c10::intrusive_ptr<PendingWork>& work) {
  if (c10d::isP2POp(work->retrieveOpType())) return;
  const std::lock_guard lock(mutex_);
  while (!collectives_.empty()) {
    const auto oldest = collectives_.front().lock();
    if (oldest && !oldest->isDone()) break;
    collectives_.pop_front();
  }
  collectives_.emplace_back(work);
}

std::vector<Backend::WorkPtr> Backend::started() {
  std::vector<WorkPtr> works;
  const std::lock_guard lock(mutex_);
  for (const auto& one : collectives_)
    if (const auto work = one.lock(); work && !work->isDone()) works.push_back(work);
  return works;
}

void Backend::startCoalescing() {
  coalescing_ = true;
  coalesced_.clear();
}

Backend::WorkPtr Backend::endCoalescing() {
  coalescing_ = false;
  auto works = std::exchange(coalesced_, {});
  if (works.empty()) return nullptr;
  if (works.size() == 1) return works.front();
  return c10::make_intrusive<SeveralWorks>(getRank(), std::move(works));
}

// Collectives.

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
      {OpType::GATHER, "rondo:gather", opts.timeout, opts.asyncOp, {input}, {output}},
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
        parts.push_back(in.even() ? c.reduce_scatter(from, to, how.op, options)
                                  : c.reduce_scatter_v(from, to, in.counts(), how.op, options));
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

// Always by messages: whether all parts are even is known to no single rank.
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

// Messages.

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

// Barriers.

// As gloo's, it also waits for what this rank has started before, with the copies into its tensors.
Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& opts) {
  Call call{OpType::BARRIER, "rondo:barrier", opts.timeout, opts.asyncOp, {}, {}};
  const auto before = started();
  call.after_waits = !before.empty();
  return run(
      call,
      [](Communicator& c, const OpOptions& options, Parts& parts) {
        parts.push_back(c.barrier(options));
      },
      [before] {
        for (const auto& work : before) work->wait(kNoTimeout);
      });
}

// Over the store, so that a failure leaves the communicator alone.
void Backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const milliseconds timeout =
      opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
  MonitoredBarrier(store_->clone(), getRank(), getSize(), ++monitored_)
      .pass(timeout, wait_all_ranks);
}

}  // namespace rondo::python

PYBIND11_MODULE(_c, module) {
  using rondo::python::Backend;
  module.doc() = "Rondo's backend for torch.distributed: use it by its name, \"rondo\".";
  rondo::python::watch_forks();
  // new_group calls it on ranks outside the new group where the default group has a device.
  py::class_<Backend, c10::intrusive_ptr<Backend>, c10d::Backend>(module, "Backend")
      .def(
          "perform_nocolor_split", [](Backend&, const py::object&) {}, py::arg("device"));
  module.def("create", &Backend::create, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("timeout"), py::arg("group"), py::arg("global_ranks"),
             py::call_guard<py::gil_scoped_release>());
  rondo::python::bind_batch_norm(module);
  module.def("shutdown_all", &rondo::python::GroupSession::close_all,
             py::call_guard<py::gil_scoped_release>());
}
