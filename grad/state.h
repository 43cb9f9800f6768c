// SPDX-License-Identifier: Apache-2.0
//
// One step after the other: gradients become ready, buckets start in their order, finish() takes
// them in.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <rondo/gradients.h>

#include "grad/header.h"
#include "grad/layout.h"
#include "grad/norms.h"
#include "grad/storage.h"
#include "grad/trace.h"

namespace rondo {

class GradientBuckets::State {
 public:
  State(Communicator& communicator, std::vector<Parameter> parameters, GradientOptions options);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  std::size_t parameter_count() const noexcept { return parameters_.size(); }
  Buffer gradient(std::size_t parameter) const;
  std::uint64_t layout_number() const noexcept { return layout_number_; }
  void zero();
  void begin_step(const StepOptions& options);
  void ready(std::size_t parameter);
  void ready(std::size_t parameter, const void* gradient);
  void finish();
  void abandon_step(std::string_view why) noexcept;
  void begin_accumulation();
  void end_accumulation() noexcept { --accumulations_; }
  void count_in_norm(const Buffer& gradient);
  double norm() const;
  double norm(std::size_t parameter) const;
  std::span<const BucketStatistics> statistics() const noexcept { return statistics_; }
  const StepStatistics& step_statistics() const noexcept { return step_statistics_; }
  std::string describe() const;
  void keep_trace(std::size_t steps);
  void save_trace(const std::string& path) const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase : std::uint8_t { idle, local, synchronized, finishing };
  enum class Mark : std::uint8_t { waiting, ready, unused };
  struct Failure {
    std::error_code code;
    std::string message;
  };
  // In the step under way.
  struct Bucket {
    std::size_t waiting = 0;  // for so many gradients
    Clock::time_point ready, started;
    std::chrono::nanoseconds exposed{};
    bool again = false;  // it had to travel again, with the powers of two again_
    Work work;
  };

  // state.cc
  void prepare_buckets();
  std::string make_title() const;
  void check_index(std::string_view call, std::size_t parameter) const;
  void check_step(const StepOptions& options);  // leaves marks of what is unused
  void check_usable() const;
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void mistake(std::unique_lock<std::mutex>& lock, const std::string& what);
  [[noreturn]] void mistaken_ready(std::unique_lock<std::mutex>& lock, std::size_t parameter);
  void keep_failure(std::error_code code, const std::string& message);
  void keep_failure();
  void open_step(const StepOptions& options);
  void mark(std::size_t parameter, Mark how);
  void mark_missing(std::unique_lock<std::mutex>& lock);

  // launch.cc: for the thread that has the launcher's role, without the lock
  void start_header();
  bool header_arrived();
  void launch_ready(std::unique_lock<std::mutex>& lock);
  void launch(std::size_t bucket);
  void contribute(std::size_t bucket);
  void contribute_wire(std::size_t bucket);
  bool contributes_zero(std::size_t parameter) const noexcept;
  OpOptions operation_options(std::string_view tag) const;

  // units.cc
  void put_sizes();
  void take_sizes();
  void measure_sizes();
  float unit_of(std::size_t bucket, std::size_t parameter) const noexcept;
  void send_again_if_too_large(std::size_t bucket);

  // unused.cc
  bool tells_unused() const noexcept { return plan_.hints || options_.find_unused; }
  void start_usage();
  bool untouched(std::size_t parameter) const noexcept;

  // finish.cc
  std::exception_ptr synchronize();
  [[noreturn]] void disagree();
  Clock::time_point await(std::size_t bucket);
  void take_in(std::size_t bucket);
  std::exception_ptr call_back(std::size_t bucket) noexcept;
  void release_works();
  void warn_of_weights();
  void note_statistics();
  void note_step();
  std::string where() const;

  // step_norms.cc
  void forget_norms();
  void add_squares(std::size_t parameter, const grad::GradientPiece& piece);
  void add_rest_of_squares(std::size_t parameter);
  void check_norms(std::string_view call) const;

  // rebuild.cc
  void agree_on_order();
  void rebuild();

  Communicator& communicator_;
  const std::vector<Parameter> parameters_;
  const GradientOptions options_;
  grad::GradientLayout layout_;
  grad::Storage storage_;
  const std::uint64_t number_;  // tells these buckets from others on the communicator
  const std::string title_;     // in messages of others that wish to start something in a step
  std::uint64_t layout_number_ = 0;
  bool order_wanted_;                    // rank 0's order of readiness has not been told yet
  std::vector<std::size_t> next_order_;  // of the layout that begin_step will make
  int accumulations_ = 0;
  bool warned_ = false;
  const int exceptions_ = std::uncaught_exceptions();  // when this was made

  mutable std::mutex mutex_;  // of what ready() changes
  std::condition_variable launched_;
  std::optional<Failure> failure_;
  Phase phase_ = Phase::idle;
  bool launching_ = false;
  std::size_t next_ = 0;  // bucket to be started
  std::vector<Mark> marks_;
  std::vector<std::size_t> observed_;  // order of readiness in this step
  std::vector<bool> accumulated_;      // given in a local step since the last that travelled
  std::vector<Bucket> buckets_;
  // When they ended, on Clock; 0: not yet. Whoever ends an operation writes here, until it has
  // written.
  std::unique_ptr<std::atomic<Clock::rep>[]> ended_;

  std::uint64_t step_ = 0;
  std::uint64_t check_ = 0;
  double weight_ = 1;
  bool any_unused_ = false;
  Clock::time_point begun_;
  std::vector<double>
      header_;  // HeaderValues, and behind them the size of each parameter, where it travels as f16
  Work header_work_;
  bool planned_ = false;
  grad::StepPlan plan_;
  std::vector<std::uint64_t>
      usage_;  // a bit for each parameter: some rank has given something for it
  Work usage_work_;

  // Of gradients that travel as f16, by parameter; empty otherwise.
  std::vector<std::optional<int>> exponents_;  // of the power of two that they travel with; none:
                                               // nothing is known of their size
  std::vector<int>
      again_;  // likewise, of the bucket that has travelled again and is being taken in
  std::vector<float>
      largest_;  // finite element that this rank has sent in the last step that travelled
  bool measuring_ = false;  // buckets wait for finish(), which finds out about sizes

  std::vector<grad::SquareSum> squares_;  // by parameter
  double other_squares_ = 0;              // of gradients that are not in buckets
  Clock::time_point finishing_;           // when finish() was called
  Clock::duration in_callbacks_{};        // in this step
  std::vector<BucketStatistics> statistics_;
  StepStatistics step_statistics_;
  grad::Trace trace_;
};

}  // namespace rondo
