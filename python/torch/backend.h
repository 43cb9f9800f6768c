// SPDX-License-Identifier: Apache-2.0
//
// Rondo as a backend of torch.distributed.
//
// A call takes one of three ways:
//   lean    blocking, nobody profiles, on the CPU: on the caller's thread, without a Work, or
//           with one that has ended where torch's flight recorder asks for it
//   inline  blocking otherwise: the same inside a Work, which has the profiler's events and keeps
//           tensors on a GPU
//   async   the operations start; the Work completes also when nobody waits for it
//
// On a GPU an operation comes after what the current stream has to do. wait() returns when all of
// it is enqueued there, and the current stream waits for its end.
//
// Threads: thread-safe. torch starts operations on one thread at a time, which differs on devices.
// Failures: DistBackendError with Rondo's message; ValueError for arguments that cannot be.
//
// It cannot be several classes: most of its functions override those of c10d::Backend, one for each
// call of torch.distributed. What calls share is in GroupSession, PendingWork and Flat.
#pragma once

#include <ATen/record_function.h>
#include <rondo/communicator.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "python/torch/element.h"
#include "python/torch/flat.h"
#include "python/torch/group_session.h"
#include "python/torch/pending_work.h"
#include "python/torch/store.h"

namespace rondo::python {

class Backend final : public c10d::Backend {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  struct Options final : c10d::Backend::Options {
    explicit Options(Milliseconds time) : c10d::Backend::Options("rondo", time) {}
    c10::intrusive_ptr<c10d::Backend::Options> clone() const override {
      return c10::make_intrusive<Options>(*this);
    }
  };

  // Joins the other ranks of the group over the store. global_ranks: empty for the default group.
  static c10::intrusive_ptr<c10d::Backend> create(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                  int size, Milliseconds timeout,
                                                  const std::string& group,
                                                  const std::vector<std::int64_t>& global_ranks);

  // is_default: the group is the default one.
  Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Milliseconds timeout,
          std::shared_ptr<GroupSession> session, bool is_default);
  ~Backend() override;

  const std::string getBackendName() const override { return "rondo"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts,
                                          const int& rank, const int& size) override;
  void setTimeout(Milliseconds timeout) override { options_->timeout = timeout; }
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setSequenceNumberForGroup() override {}
  void enableCollectivesTiming() override {}
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
    session_->completions().add(id, std::move(hook));
  }
  void unregisterCompletionHook(std::int64_t id) override { session_->completions().remove(id); }
  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(std::int64_t id, c10d::AbortHook hook) override {
    session_->abort_hooks().add(id, std::move(hook));
  }
  void unregisterAbortHook(std::int64_t id) override { session_->abort_hooks().remove(id); }
  // In host memory, and on every GPU that Rondo can use.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  const std::shared_ptr<GroupSession>& session() const noexcept { return session_; }
  // For DDP, which takes the buckets of complex gradients for twice as many real numbers.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  // Returns memory that ranks of one host reach directly, or of a GPU. It may outlive the group. If
  // there is no more of it, or the tensor has grown, it is ordinary memory: operations then copy.
  at::Tensor allocate(std::int64_t size, const at::TensorOptions& options);
  void shutdown() override {
    session_->close();
    if (is_default_ && getSize() > 1) TorchStore(store_).leave(getRank());
  }
  void abort() override {
    session_->abort("the process group was aborted");
    session_->close();
  }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input,
                            const c10d::AllgatherOptions& opts) override;
  WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override;
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input,
                        const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input,
                            std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits,
                            const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

 private:
  // start(communicator, operands, options) starts one operation, for each of these. Results are
  // copied into the caller's tensors when all have succeeded.
  template <class Start>
  WorkPtr run(const GroupCall& call, std::vector<Operands> operands, const Start& start);
  // start(communicator, options, parts) starts operations and adds them to parts. after() comes
  // when they have succeeded. It keeps the tensors whose memory they use; idle: it does only that.
  template <class Start, class After>
  WorkPtr run_parts(const GroupCall& call, const Start& start, After after, bool idle = false);
  OpOptions options_of(const GroupCall& call) const;
  void check_root(std::int64_t root) const;
  void remember(const c10::intrusive_ptr<PendingWork>& work);
  std::vector<c10::intrusive_ptr<PendingWork>> started();  // collectives that have not ended

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<Options> options_;
  const std::shared_ptr<GroupSession> session_;
  const bool is_default_;
  std::atomic<std::uint64_t> sequence_{0};
  std::uint64_t monitored_ = 0;           // barriers so far
  std::atomic<std::uint32_t> sparse_{0};  // sums of sparse tensors so far

  std::mutex mutex_;
  std::deque<c10::weak_intrusive_ptr<PendingWork>> collectives_;  // some may have ended
  bool coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

}  // namespace rondo::python
