// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rondo/batch_norm.h>

#include "bn/exchange.h"
#include "bn/lines.h"
#include "bn/merge.h"
#include "bn/passes.h"
#include "bn/shared.h"

namespace rondo::bn {

// One layer on one rank: its parameters and statistics, and the computation before and after a
// collective. The collective itself, of one or several layers, is an Exchange. Thread-bound,
// without locks. A failed collective leaves the layer in no pass.
class Layer {
 public:
  Layer(Communicator& communicator, std::size_t channels, BatchNormOptions options);
  ~Layer();

  Communicator& communicator() const noexcept { return *communicator_; }
  std::size_t channels() const noexcept { return channels_; }
  const BatchNormOptions& options() const noexcept { return options_; }
  // "layer bn3"; "layer bn3 (2nd of this name)"; "unnamed layer 1"
  std::string title() const;
  // "rank 2: batch norm layer bn3", for errors of this rank alone
  std::string who() const;
  Shared& shared() const noexcept { return *shared_; }
  // own_exchange() is the collective that this layer uses if it is the first of a list. exchange()
  // is the one under way that it takes part in, or null.
  Exchange& own_exchange() noexcept { return own_; }
  Exchange* exchange() const noexcept { return under_way_; }
  void enter(Exchange* exchange) noexcept { under_way_ = exchange; }
  std::uint64_t step() const noexcept { return steps_; }

  // A forward pass: begin, put and take for each collective, end.
  void begin_forward(const Activations& x);
  void put_forward(std::span<double> sums) const noexcept;
  bool take_forward(std::span<const double> sums, double count) noexcept;  // false: once more
  void end_forward(const Activations& y);
  // A backward pass likewise.
  void begin_backward(const Activations& x, const Activations& dy);
  void put_backward(std::span<double> sums) const noexcept;
  void take_backward(std::span<const double> sums) noexcept;
  void end_backward(const Activations& dx);
  void evaluate(const Activations& x, const Activations& y);

  // Throw what begin would throw for wrong arguments, before anything has changed.
  void check_input(const Activations& x, const char* what) const;
  void check_backward(const Activations& x, const Activations& dy) const;
  void check_output(const Activations& in, const Activations& out, const char* what) const;
  void check_output(const Activations& out, Pass pass) const;  // of the pass under way

  // Elements of a channel on this rank in the pass under way.
  double local_count() const noexcept { return local_.count; }
  // A hash of what must be the same on all ranks, so that the next sums are about the same point.
  std::uint64_t history() const noexcept;
  Buffer point() noexcept { return {global_.point.data(), channels_, DType::f64}; }
  // Hashes that show whether this is the same layer on all ranks: of name, number and channels;
  // identity() also covers the options.
  std::uint64_t name_hash() const noexcept { return name_hash_; }
  std::uint64_t identity() const noexcept { return identity_; }

  Buffer gamma() noexcept { return affine(gamma_at); }
  Buffer beta() noexcept { return affine(beta_at); }
  Buffer gamma_gradient() noexcept { return gamma_gradient_; }
  Buffer beta_gradient() noexcept { return beta_gradient_; }
  void bind_gradients(Buffer gamma_gradient, Buffer beta_gradient);
  Buffer running_mean() noexcept { return parameter(running_mean_at); }
  Buffer running_variance() noexcept { return parameter(running_variance_at); }
  std::uint64_t batches = 0;
  std::span<const double> gamma_gradient_sum() const noexcept;
  std::span<const double> beta_gradient_sum() const noexcept;
  const GlobalMoments& moments() const noexcept { return global_; }
  std::span<const double> variance() const noexcept { return variance_; }

 private:
  // Where the arrays of parameters_ lie.
  enum Array : std::size_t {
    gamma_at,
    beta_at,
    gamma_gradient_at,
    beta_gradient_at,
    running_mean_at,
    running_variance_at,
    array_count
  };
  Buffer parameter(Array which) const noexcept;
  Buffer affine(Array which) const noexcept;
  template <class Function>
  void with_type(Function function) const;
  template <class P>
  P* array(const Memory& memory, std::size_t number) const noexcept;
  template <class P>
  Lines<P> lines() const noexcept;
  template <class P>
  Affine<P> affine_parameters() const noexcept;
  Statistics statistics() const noexcept;
  std::size_t bytes_of(const Activations& x) const noexcept;
  void map_forward(const Activations& x, void* y, const Statistics& statistics);

  Communicator* communicator_;
  std::size_t channels_;
  BatchNormOptions options_;
  DType parameter_type_;
  Shared* shared_;
  LayerNames::Use name_;
  std::uint64_t name_hash_, identity_;
  Passes passes_;
  Memory parameters_, lines_;  // lines_: the Lines of the pass under way
  Buffer gamma_gradient_, beta_gradient_;
  LocalMoments local_;
  LocalMoments evaluated_;  // statistics that an evaluation uses
  GlobalMoments global_;
  std::vector<double> variance_;
  // First the sums of dy and of dy * (x - mean), then the gradients of beta and gamma.
  std::vector<double> local_sums_, global_sums_;
  std::uint64_t steps_ = 0;   // forward passes begun
  bool has_forward_ = false;  // a forward pass has ended well, and its backward has not begun
  std::size_t samples_ = 0, spatial_ = 0;  // of the last forward pass
  std::uint64_t x_fingerprint_ = 0;        // likewise
  bool in_place_ = false;                  // likewise: y lay over x
  Activations x_, dy_;                     // of the pass under way
  Exchange* under_way_ = nullptr;
  Exchange own_;
};

}  // namespace rondo::bn
