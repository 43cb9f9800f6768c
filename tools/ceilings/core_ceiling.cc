// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "base/mix.h"
#include "base/process.h"
#include "base/shared_memory.h"
#include "tools/ceilings/bare_all_reduce.h"
#include "tools/ceilings/ceiling.h"
#include "tools/measure/operation.h"
#include "tools/shared/agree.h"
#include "tools/shared/lists.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Mark = std::array<std::uint8_t, 16>;
constexpr std::size_t page_bytes = 4096;
constexpr std::chrono::seconds core_patience{10};
constexpr std::chrono::milliseconds between_looks{20};
constexpr double wanted_seconds = 0.1;
constexpr int fewest_calls = 5, most_calls = 200;

// Two processes with the same number here use the same PIDs.
std::uint64_t pid_namespace() {
  return base::hash_text(base::process_namespace());
}

// Also true for a process that its parent has not waited for yet. False where the system is too old
// to tell.
bool has_ended(::pid_t process) {
  const base::FileDescriptor descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (!descriptor) return errno == ESRCH;
  pollfd end{descriptor.get(), POLLIN, 0};
  return ::poll(&end, 1, 0) == 1;
}

// Each rank tells this to all others over the communicator; file and mark are rank 0's.
struct Introduction {
  std::uint64_t pid_namespace = 0;
  std::int32_t process = 0;
  std::int32_t file = -1;
  Mark mark{};
};

// The first page of the memory. The bare all-reduce has the others.
struct Head {
  Mark mark;  // random, so that the file of another process is not taken for this one
  std::atomic<bool> given_up;
};

// The ceiling of an all-reduce on ordinary memory between ranks on one host: the bare all-reduce of
// f32 sums (bare_all_reduce.h), over memory of its own. Rank 0 makes the memory, and the others
// open it in /proc, which needs one PID namespace and one user. Ranks that wait notice a rank that
// has ended, or that does nothing for ten seconds. Then measure() returns 0 for good, or throws if
// the communicator has failed too.
class CoreCeiling final : public Ceiling {
 public:
  // `from` and `to` are the buffers of the benchmark: both have the same size, on all ranks.
  // measure() overwrites them. fresh: the row writes its buffers anew before each iteration, so
  // measure() does too. All ranks call it together. Throws only when the communicator fails.
  CoreCeiling(Communicator& communicator, std::span<std::byte> from, std::span<std::byte> to,
              bool fresh);
  CoreCeiling(const CoreCeiling&) = delete;
  CoreCeiling& operator=(const CoreCeiling&) = delete;

  // Whether all ranks have mapped the memory and none has given up.
  bool usable() const noexcept override { return usable_; }
  // Returns the bus bandwidth of the median of some calls, each timed like an iteration of a row:
  // after a barrier, at the slowest rank. They take about a tenth of a second, or five calls.
  double measure(const Row& row) override;
  std::string trouble() const override { return trouble_; }

 private:
  void offer(Introduction& mine);
  void open(const Introduction& first);
  std::vector<double> times_of(std::size_t bytes);
  void look(std::chrono::steady_clock::duration waited);
  Head& head() const;

  Communicator& communicator_;
  const std::span<std::byte> from_, to_;
  const bool fresh_;
  std::vector<::pid_t> processes_;  // of all ranks
  base::FileDescriptor file_;       // of rank 0, until the others have opened it
  base::Mapping memory_;
  std::unique_ptr<BareAllReduce> bare_;
  std::chrono::steady_clock::time_point next_look_{};
  std::size_t prepared_bytes_ = 0;
  double prepared_seconds_ = 0;
  bool usable_ = false;
  std::string trouble_;
};

CoreCeiling::CoreCeiling(Communicator& communicator, std::span<std::byte> from,
                         std::span<std::byte> to, bool fresh)
    : communicator_(communicator), from_(from), to_(to), fresh_(fresh) {
  Introduction mine;
  mine.process = ::getpid();
  const bool offered = succeeds_on_all(communicator, trouble_, [&] {
    if (std::min(from.size(), to.size()) < sizeof(float))
      throw std::runtime_error("the buffers are smaller than an f32");
    mine.pid_namespace = pid_namespace();
    if (communicator.rank() == 0) offer(mine);
  });
  if (!offered) return;
  const std::vector<Introduction> all = gather_from_ranks(communicator, mine);
  for (const Introduction& introduction : all) processes_.push_back(introduction.process);
  usable_ = succeeds_on_all(communicator, trouble_, [&] {
    if (communicator.rank() > 0) open(all.front());
    bare_ = std::make_unique<BareAllReduce>(communicator.rank(), communicator.size(),
                                            memory_.data() + page_bytes,
                                            [this](Clock::duration waited) { look(waited); });
  });
  file_.reset();
}

void CoreCeiling::offer(Introduction& mine) {
  const std::size_t bytes = page_bytes + BareAllReduce::memory_bytes(communicator_.size());
  file_ = base::make_shared_memory(bytes);
  memory_ = base::Mapping(file_.get(), bytes, base::Mapping::Access::write);
  if (::getrandom(mine.mark.data(), mine.mark.size(), 0) != static_cast<ssize_t>(mine.mark.size()))
    throw std::runtime_error("getrandom gave too few bytes");
  head().mark = mine.mark;
  mine.file = file_.get();
}

void CoreCeiling::open(const Introduction& first) {
  if (first.pid_namespace != pid_namespace())
    throw std::runtime_error("this rank and rank 0 are in different PID namespaces");
  const std::string path = fmt::format("/proc/{}/fd/{}", first.process, first.file);
  const base::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!file) throw std::system_error(errno, std::generic_category(), path + " of rank 0");
  const std::size_t bytes = page_bytes + BareAllReduce::memory_bytes(communicator_.size());
  if (const std::string defect = base::defect_of_memory(file.get(), bytes); !defect.empty())
    throw std::runtime_error(fmt::format("{} is not the memory of rank 0: {}", path, defect));
  base::Mapping memory(file.get(), bytes, base::Mapping::Access::write);
  memory_ = std::move(memory);
  if (head().mark == first.mark) return;
  memory_ = {};
  throw std::runtime_error(path + " is not the memory of rank 0");
}

Head& CoreCeiling::head() const {
  static_assert(sizeof(Head) <= page_bytes && std::atomic<bool>::is_always_lock_free);
  return *reinterpret_cast<Head*>(memory_.data());
}

// Throws when the wait is in vain.
void CoreCeiling::look(Clock::duration waited) {
  if (head().given_up.load(std::memory_order_relaxed))
    throw std::runtime_error("another rank gave up");
  const auto now = Clock::now();
  if (waited < between_looks || now < next_look_) return;
  next_look_ = now + between_looks;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank)
    if (has_ended(processes_[rank]))
      throw std::runtime_error(
          fmt::format("rank {} (pid {}) ended meanwhile", rank, processes_[rank]));
  if (waited > core_patience)
    throw std::runtime_error(
        fmt::format("another rank did nothing for {} seconds", core_patience.count()));
}

// The times of the calls, in seconds: as many on each rank.
std::vector<double> CoreCeiling::times_of(std::size_t bytes) {
  const auto in = from_.first(bytes), out = to_.first(bytes);
  const auto write = [&] {
    std::ranges::fill(out, std::byte{2});
    std::ranges::fill(in, std::byte{1});  // floats that are neither subnormal nor NaN
  };
  write();
  if (prepared_bytes_ != bytes) prepared_seconds_ = bare_->prepare(in, out);
  prepared_bytes_ = bytes;
  const int calls = static_cast<int>(
      std::clamp(wanted_seconds / prepared_seconds_, double{fewest_calls}, double{most_calls}));
  std::vector<double> times(static_cast<std::size_t>(calls));
  for (double& time : times) {
    if (fresh_) write();
    bare_->barrier();
    const auto begin = Clock::now();
    bare_->all_reduce();
    time = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  bare_->barrier();
  return times;
}

double CoreCeiling::measure(const Row& row) {
  const std::size_t whole = sizeof(float);
  const std::size_t bytes =
      std::min((row.bytes + whole - 1) / whole, std::min(from_.size(), to_.size()) / whole) * whole;
  if (!usable_) return 0;
  std::vector<double> times;
  usable_ = succeeds_on_all(communicator_, trouble_, [&] {
    try {
      times = times_of(bytes);
    } catch (const std::exception&) {
      head().given_up = true;
      throw;
    }
  });
  if (!usable_) return 0;
  maximum_over_ranks(communicator_, times);
  return static_cast<double>(row.bytes) * bus_factor(Collective::all_reduce, communicator_.size()) /
         median(times) / 1e9;
}

}  // namespace

std::unique_ptr<Ceiling> make_core_ceiling(Communicator& communicator, std::span<std::byte> from,
                                           std::span<std::byte> to, bool fresh) {
  return std::make_unique<CoreCeiling>(communicator, from, to, fresh);
}

}  // namespace rondo::tools
