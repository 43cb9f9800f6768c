// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/batch_norm.h>

#include "bn/device/gpu_layer.h"
#include "bn/exchange.h"
#include "bn/lines.h"
#include "bn/merge.h"
#include "bn/pass_record.h"
#include "bn/passes.h"
#include "bn/shared.h"

namespace rondo::bn {

// One layer on one rank: its parameters and statistics, and the computation before and after a
// collective. The collective itself, of one or several layers, is an Exchange. What backward needs
// of a forward pass is a PassRecord. Thread-bound, without locks, except that any thread may give
// records back. A failed collective leaves the layer in no pass. A layer may outlive its
// communicator: see check_alive.
class Layer {
 public:
  Layer(Communicator& communicator, std::size_t channels, BatchNormOptions options);
  ~Layer();

  // Throws Error if the communicator has been destroyed. Passes and evaluations need it, parameters
  // and messages do not.
  void check_alive() const;
  void orphan() noexcept;  // the communicator ends

  Communicator& communicator() const noexcept { return *communicator_; }
  std::size_t channels() const noexcept { return channels_; }
  const BatchNormOptions& options() const noexcept { return options_; }
  void set_momentum(std::optional<double> momentum);
  void set_threads(int threads);
  void set_deadline(std::chrono::milliseconds deadline);
  // From the next pass on, and for evaluations.
  void set_stream(void* stream) noexcept { next_stream_ = stream; }
  // Comes first at the begin and at the end of a pass, which ends on the stream of its begin.
  void take_stream() noexcept;
  void set_batches(std::uint64_t count) noexcept;
  // "layer bn3"; "layer bn3 (2nd of this name)"; "unnamed layer 1"
  const std::string& title() const noexcept { return records_->title(); }
  // "rank 2: batch norm layer bn3", for errors of this rank alone
  std::string who() const;
  Shared& shared() const noexcept { return *shared_; }
  // own_exchange() is the collective that this layer uses if it is the first of a list. exchange()
  // is the one under way that it takes part in, or null.
  Exchange& own_exchange() noexcept { return own_; }
  Exchange* exchange() const noexcept { return under_way_; }
  void enter(Exchange* exchange) noexcept { under_way_ = exchange; }

  // A forward pass: begin, put and take for each collective, end. Then last() is its record, which
  // take_pass() takes away.
  void begin_forward(const Activations& x);
  void put_forward(std::span<double> sums) const noexcept;
  bool take_forward(std::span<const double> sums, double count) noexcept;  // false: once more
  void end_forward(const Activations& y, const BatchNormFusion& fusion);
  BatchNormPass take_pass();
  // A backward pass likewise. The record stays as it is until its end.
  void begin_backward(const PassRecord& pass, const Activations& x, const Activations& dy,
                      const BatchNormFusion& fusion);
  void put_backward(std::span<double> sums) const noexcept;
  void take_backward(std::span<const double> sums) noexcept;
  void end_backward(const Activations& dx, const BatchNormGradients& gradients);
  // The same without a collective: without dx (null), or where statistics are not of all ranks.
  void backward_alone(const PassRecord& pass, const Activations& x, const Activations& dy,
                      const Activations* dx, const BatchNormGradients& gradients,
                      const BatchNormFusion& fusion);
  void evaluate(const Activations& x, const Activations& y, const BatchNormFusion& fusion);
  BatchNormPass evaluate_pass(const Activations& x, const Activations& y,
                              const BatchNormFusion& fusion);

  // On a GPU: what takes the place of the puts and takes above. gpu() is null on the processor.
  GpuLayer* gpu() const noexcept { return gpu_.get(); }
  void put_forward_on_gpu(std::uintptr_t section, const SectionHead& head, bool again);
  void put_backward_on_gpu(std::uintptr_t section, const SectionHead& head);
  // Enqueues the merge; finish: and all of the end but the pass over x. The context is current.
  void merge_on_gpu(std::uintptr_t section, bool finish);
  // Whether K may well be too far from the mean, so that the host should look at the sums of the
  // forward pass before its end. The same on all ranks.
  bool doubts_point() const noexcept { return doubts_ > 0; }
  // What the host sees of the sums of a forward pass: in the next pass, or before its end. far: K
  // was too far in the pass's first collective.
  void take_report(double count, bool far) noexcept;
  void know_sums(double count, bool far) noexcept;
  // How long to wait for the GPU.
  std::chrono::milliseconds wait_time() const noexcept;

  // The record of the last forward pass, until its backward pass begins. Throws Error if there is
  // none.
  PassRecord& last() const;
  void forget_last() noexcept { last_->ready = false; }
  // The record of a pass. Throws Error if it is empty or of another layer.
  const PassRecord& record_of(const BatchNormPass& pass) const;

  // Throw what begin would throw for wrong arguments, before anything has changed.
  void check_input(const Activations& x, const char* what) const;
  void check_backward(const PassRecord& pass, const Activations& x, const Activations& dy) const;
  void check_output(const Activations& in, const Activations& out, const char* what) const;
  void check_output(const Activations& out, Pass pass) const;  // of the pass under way
  void check_gradients(const BatchNormGradients& gradients) const;
  void check_forward_fusion(const Activations& x, const BatchNormFusion& fusion) const;
  void check_forward_fusion(const BatchNormFusion& fusion) const;  // of the pass under way
  void check_backward_fusion(const PassRecord& pass, const Activations& x, const Activations& dy,
                             const BatchNormFusion& fusion) const;
  // out: y or dx.
  void check_fused_output(const Activations& out, const BatchNormFusion& fusion, Pass pass) const;
  const BatchNormFusion& fusion() const noexcept { return fusion_; }  // of the backward pass
  void check_stream() const;

  // Of the pass under way: the number of its forward pass, the elements of a channel on this rank,
  // and a hash of what must be the same on all ranks. Forward that is the point of the sums,
  // backward the point that the forward pass left.
  std::uint64_t step() const noexcept { return current_->step; }
  double local_count() const noexcept {
    return static_cast<double>(current_->samples * current_->spatial);
  }
  std::uint64_t history() const noexcept { return current_->history; }
  Buffer point() noexcept;
  Buffer mean_buffer() noexcept;
  Buffer variance_buffer() noexcept;
  Buffer gamma_gradient_sum_buffer() noexcept;
  Buffer beta_gradient_sum_buffer() noexcept;
  // Hashes that show whether this is the same layer on all ranks: of name, number and channels;
  // identity() also covers the options.
  std::uint64_t name_hash() const noexcept { return name_hash_; }
  std::uint64_t identity() const noexcept { return identity_; }

  Buffer gamma() const noexcept { return gamma_; }
  Buffer beta() const noexcept { return beta_; }
  BatchNormGradients gradients() const noexcept { return gradients_; }
  Buffer running_mean() const noexcept { return running_mean_; }
  Buffer running_variance() const noexcept { return running_variance_; }
  void bind_parameters(Buffer gamma, Buffer beta);
  void bind_statistics(Buffer mean, Buffer variance);
  void bind_gradients(Buffer gamma_gradient, Buffer beta_gradient);
  std::uint64_t batches = 0;
  std::span<const double> gamma_gradient_sum() const noexcept;
  std::span<const double> beta_gradient_sum() const noexcept;
  const GlobalMoments& moments() const noexcept { return global_; }
  std::span<const double> variance() const noexcept { return variance_; }

 private:
  bool has_gamma() const noexcept { return options_.affine; }
  bool has_beta() const noexcept { return options_.affine && options_.bias; }
  // Number `which` of the layer's own arrays; empty unless it exists.
  Buffer own_array(std::size_t which, bool exists) const noexcept;
  // Throws Error unless the buffer has what the layer needs there. `exists`: the layer has it.
  void check_bound(const char* what, const Buffer& buffer, bool exists) const;
  void refuse(const std::string& problem) const;  // throws Error unless it is empty
  std::string origin_of(const PassRecord& pass) const;
  template <class Function>
  void with_type(Function function) const;
  template <class P>
  Lines<P> lines() const noexcept;
  std::size_t bytes_of(const Activations& x) const noexcept;
  TensorLayout layout_of(const Activations& x) const noexcept {
    return x.layout.value_or(options_.layout);
  }
  // Throws Error if there are samples and the layouts differ.
  void check_layout(const Activations& given, TensorLayout wanted, const char* what) const;
  void note_input(PassRecord& pass, const Activations& x) const noexcept;
  void update_running_statistics();
  void read_gamma(PassRecord& pass) const;
  void take_local_sums(const PassRecord& pass, const Activations& x, const Activations& dy);
  void evaluate_with(PassRecord& pass, const Activations& x, const Activations& y,
                     const BatchNormFusion& fusion);
  // The same on a GPU.
  GpuRecord& gpu_record(PassRecord& pass) const;
  GpuRecord& gpu_record(const PassRecord& pass) const { return *pass.gpu; }
  LayerBuffers buffers() const noexcept {
    return {gamma_, beta_, running_mean_, running_variance_};
  }
  double momentum() const noexcept {
    return options_.momentum.value_or(1 / static_cast<double>(batches));
  }
  void begin_forward_on_gpu();
  void finish_forward_on_gpu(bool merge, std::uintptr_t section);
  void end_forward_on_gpu(const Activations& y, const BatchNormFusion& fusion);
  void end_backward_on_gpu(const Activations& dx, const BatchNormGradients& gradients);
  void evaluate_on_gpu(PassRecord& pass, const Activations& x, const Activations& y,
                       const BatchNormFusion& fusion);
  void backward_alone_on_gpu(const PassRecord& pass, const Activations& x, const Activations& dy,
                             const Activations* dx, const BatchNormGradients& gradients,
                             const BatchNormFusion& fusion);
  // Throws Error unless the memory is where the layer computes.
  void check_memory(const void* data, std::size_t bytes, const char* what) const;
  void take_own_moments(PassRecord& pass, const Activations& x);
  void map_forward(const PassRecord& pass, const Activations& x, void* y);
  // gradients: those of beta and gamma over all elements that the statistics are of.
  void map_backward(const PassRecord& pass, const Activations& x, const Activations& dy, void* dx,
                    std::span<const double> gradients);
  // Turns the local sums into gradients and stores these.
  void put_gradients(const PassRecord& pass, const BatchNormGradients& to);

  Communicator* communicator_;  // null once it has gone, likewise shared_ and name_
  int rank_;
  std::size_t channels_;
  BatchNormOptions options_;
  DType parameter_type_;  // of the layer's own arrays, and of the computation
  Shared* shared_;
  std::optional<LayerNames::Use> name_;
  std::uint64_t name_hash_, identity_;
  std::unique_ptr<GpuLayer> gpu_;  // null on the processor
  std::size_t on_host_;            // the channels whose arrays are vectors: 0 on a GPU
  std::shared_ptr<PassPool> records_;
  Passes passes_;
  Memory arrays_, lines_;  // lines_: the Lines of the pass under way
  // In arrays_, unless bound elsewhere.
  Buffer gamma_, beta_, running_mean_, running_variance_;
  BatchNormGradients gradients_;
  LocalMoments local_;
  LocalMoments evaluated_;  // statistics that an evaluation uses
  GlobalMoments global_;
  std::vector<double> variance_;
  // First the sums of dy and of dy * (x - mean), then the gradients of beta and gamma.
  std::vector<double> local_sums_, global_sums_;
  std::vector<double> beta_values_, values_;  // values_: two arrays, for conversions
  std::unique_ptr<PassRecord> last_;          // null: taken, or no pass yet
  PassRecord evaluation_;                     // of an evaluation without a pass object
  std::uint64_t steps_ = 0;                   // forward passes begun
  const PassRecord* current_ = nullptr;       // of the pass under way, like the next
  Activations x_, dy_;
  BatchNormFusion fusion_;  // in backward
  // On a GPU.
  int doubts_ = 1;        // passes to come whose sums the host looks at
  bool counted_ = false;  // the pass that was not looked at yet is in `batches`
  void *next_stream_ = nullptr, *pass_stream_ = nullptr;
  bool finished_ = false;  // the end of the forward pass under way is enqueued, but for its map
  std::uintptr_t section_ = 0;  // of the pass under way
  struct Known {
    const void* data;
    std::size_t bytes;
  };
  mutable std::array<Known, 8> known_{};  // memory that was checked; the oldest is replaced
  mutable std::size_t next_known_ = 0;
  Exchange* under_way_ = nullptr;
  Exchange own_;
};

}  // namespace rondo::bn
