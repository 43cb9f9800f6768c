// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/session.h"

#include <rondo/info.h>
#include <rondo/version.h>

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <csignal>
#include <system_error>
#include <vector>

#include "base/text.h"
#include "tools/records/result_file.h"
#include "tools/shared/agree.h"
#include "tools/shared/exit_status.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr int most_peers_shown = 4;
// A launcher sends a signal to one rank after the other.
constexpr std::chrono::milliseconds signal_to_all{300};

}  // namespace

Session::Session(const BenchOptions& options, Communicator& communicator, EarlyEnd& early_end)
    : options_(options),
      communicator_(communicator),
      early_end_(early_end),
      progress_(communicator_.rank() == 0 && !options.quiet) {
  open_files();
  open_gpu();
  const SystemInfo info = gather_info(options.connect);
  setting_.command = options.command;
  setting_.time = now_in_words();
  setting_.operations = options.operations;
  setting_.ranks = communicator_.size();
  setting_.conditions = options.conditions;
  setting_.direct = options.connect.algorithm == "direct";
  setting_.environment = info.variables;
  setting_.hosts = gather_hosts(communicator_, describe_host(info));
  find_transports(info);
  if (is_first()) find_binding();
}

// Rank 0 tries its files before the first measurement. When it cannot write one, all ranks throw.
void Session::open_files() {
  std::string trouble;
  const bool opened = succeeds_on_all(communicator_, trouble, [&] {
    if (!is_first()) return;
    try_files(options_);
    record_.emplace(options_.json, options_.csv, options_.jsonl);
  });
  if (opened) return;
  throw UsageError(is_first() ? trouble : "rank 0 cannot write its files");
}

void Session::open_gpu() {
  if (!options_.device.on_gpus) return;
  gpu_ = tools::open_gpu(communicator_, options_.device, options_.buffer_bytes(), options_.ceiling);
  setting_.gpu = &*gpu_;
}

bool Session::goes_on() {
  const int asked = early_end_.output_is_closed() ? SIGPIPE : early_end_.signal();
  std::array<double, 2> ends{lost_ ? 1.0 : 0.0, static_cast<double>(asked)};
  maximum_over_ranks(communicator_, ends);
  ended_by_ = static_cast<int>(ends[1]);
  if (ended_by_ != 0) early_end_.stop().agree();
  return ends[0] == 0 && ended_by_ == 0;
}

// "rank 2 was ended by SIGTERM"; without a rank where all have got a signal.
std::string Session::describe_early_end() {
  std::string why = describe_end(ended_by_);
  if (ended_by_ == SIGPIPE) return why;
  std::vector<double> asked(static_cast<std::size_t>(communicator_.size()), 0);
  asked[static_cast<std::size_t>(communicator_.rank())] =
      early_end_.await_signal(signal_to_all) ? 1 : 0;
  maximum_over_ranks(communicator_, asked);
  std::vector<int> ranks;
  for (int rank = 0; rank < communicator_.size(); ++rank)
    if (asked[static_cast<std::size_t>(rank)] > 0) ranks.push_back(rank);
  if (ranks.size() == asked.size()) return why;
  const char* const verb = ranks.size() == 1 ? "was" : "were";
  return fmt::format("{} {} {}", base::list_of_ranks(std::move(ranks)), verb, why);
}

int Session::end(int status) {
  const std::string why = ended_by_ != 0 ? describe_early_end() : "";
  if (lost_) {
    try {
      std::rethrow_exception(lost_);
    } catch (const std::exception& error) {
      fail(error.what());
      throw;
    }
  }
  if (ended_by_ == 0) return status;
  fail("ended early: " + why);
  if (is_first() && ended_by_ != SIGPIPE)
    say("rondo bench: ended early: {}; the results so far are kept\n", why);
  return exit_of_signal(ended_by_);
}

// Sets the transports that at least one rank uses to reach another.
void Session::find_transports(const SystemInfo& info) {
  std::vector<std::string> names, used;
  for (const TransportInfo& transport : info.transports) names.push_back(transport.name);
  std::vector<double> uses(names.size(), 0);
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    const std::string how = communicator_.describe_peer(peer);
    for (std::size_t i = 0; i < names.size(); ++i)
      if (how.substr(0, how.find(',')) == names[i]) uses[i] = 1;
  }
  maximum_over_ranks(communicator_, uses);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (uses[i] > 0) used.push_back(names[i]);
  setting_.transport = used.empty() ? "none" : join(used, "+");
}

// Sets what the affinity mask of this rank means. A machine that hwloc cannot read has no cores to
// be bound to.
void Session::find_binding() {
  setting_.processors = base::affinity_mask();
  try {
    setting_.bound = classify(load_topology(), setting_.processors);
  } catch (const std::system_error&) {
    setting_.bound = Bound::none;
  }
}

// Prints how rank 0 reaches the first peers to which it has several paths. Most peers are reached
// in the same way, so a few lines are enough.
void Session::print_peers() {
  int shown = 0;
  for (int peer = 1; peer < communicator_.size() && shown < most_peers_shown; ++peer) {
    const std::string how = communicator_.describe_peer(peer);
    if (how.find(" paths") == std::string::npos) continue;
    print("# rank 0 to rank {}: {}\n", peer, how);
    ++shown;
  }
}

// Prints which GPU rank 0 uses, and what bounds operations that are staged.
void Session::print_gpu() const {
  if (!gpu_) return;
  print("# rank 0 uses GPU {}: {}, {}; staged through {}\n", gpu_->info.device, gpu_->info.name,
        base::describe_bytes(gpu_->info.memory_bytes), gpu_staging(setting_));
  if (gpu_->to_host > 0)
    print(
        "# copies between GPU {} and pinned memory reach {:.1f} GB/s to the GPU, {:.1f} GB/s to "
        "the host\n",
        gpu_->info.device, gpu_->to_gpu, gpu_->to_host);
}

void Session::describe(std::string_view title) {
  if (!shows_table()) return;
  deliver([&] {
    print("# rondo {}: {} over {}, {} {}{}\n", version(), title, setting_.transport, setting_.ranks,
          setting_.ranks == 1 ? "rank" : "ranks", describe_calls(setting_));
    for (const HostRecord& host : setting_.hosts)
      print("# {} {} on {}\n", host.ranks.size() == 1 ? "rank" : "ranks", ranks_of(host),
            host.name);
    print("# rank 0 is {}\n", tools::describe(setting_.bound, setting_.processors));
    print_gpu();
    print_peers();
    flush_output();
  });
}

}  // namespace rondo::tools
