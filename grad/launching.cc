// SPDX-License-Identifier: Apache-2.0
#include "grad/launching.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include <rondo/agreement.h>
#include <rondo/error.h>

namespace rondo::grad {

namespace {

void settle(Work& work) noexcept {
  try {
    work.wait();
  } catch (const std::exception&) {  // it has ended
  }
}

}  // namespace

Launcher::Launcher(Setup& setup, Collector& collector, Failure& failure)
    : setup_(setup),
      collector_(collector),
      failure_(failure),
      used_((setup.parameters.size() + 63) / 64),
      flights_(setup.layout.buckets.size()) {}

Launcher::~Launcher() {
  const std::size_t launched = setup_.passes->ends_in_finish() ? collector_.launched() : 0;
  for (std::size_t bucket = 0; bucket < flights_.size(); ++bucket) {
    settle(flights_[bucket].work);
    if (bucket < launched) flights_[bucket].ended.wait(0, std::memory_order_acquire);
  }
  settle(usage_work_);
  settle(header_work_);
}

void Launcher::begin_step(const StepOptions& options) {
  weight_ = options.weight;
  check_ = options.check;
  planned_ = false;
  for (Flight& flight : flights_) flight.ended.store(0, std::memory_order_relaxed);
  header_ = make_header(setup_.number, collector_.step(), options);
  // On a GPU it takes long to allocate. A rank that only gives zeros does so when it loads them.
  if (!options.unused.empty()) setup_.passes->make_room_to_save();
  const Buffer buffer = buffer_of(std::span<double>(header_));
  header_work_ = setup_.communicator.all_reduce(buffer, buffer, ReduceOp::sum,
                                                setup_.operation_options("gradients header"));
}

void Launcher::settle_header(std::chrono::nanoseconds patience) noexcept {
  try {
    (void)header_work_.wait_for(patience);
  } catch (const std::exception&) {  // it has ended
  }
}

// Returns whether buckets may start. If the header has failed, finish() throws the reason.
bool Launcher::header_arrived() {
  if (planned_) return plan_.agreed;
  if (!header_work_.done() || header_work_.error()) return false;
  plan_ = make_plan(header_, setup_.options.averaging, weight_, setup_.communicator.size());
  planned_ = true;
  return plan_.agreed;
}

void Launcher::run(std::size_t first) {
  std::exception_ptr thrown;
  for (std::optional<std::size_t> bucket = first; bucket;) {
    bool launched = false;
    try {
      if (header_arrived()) {
        launch(*bucket);
        launched = true;
      }
    } catch (...) {
      thrown = std::current_exception();
      failure_.keep_current(collector_.step());
    }
    bucket = collector_.after_launch(launched);
  }
  if (thrown) std::rethrow_exception(thrown);
}

void Launcher::launch(std::size_t bucket) {
  if (bucket == 0 && plan_.hints && !setup_.options.find_unused) start_usage();
  const auto gives_zeros = [this](std::size_t parameter) {
    return plan_.silent || collector_.gives_nothing(parameter);
  };
  setup_.passes->load(bucket, gives_zeros, plan_.wire_factor, tells_unused());
  char tag[32];
  const auto end = fmt::format_to_n(tag, sizeof tag, "gradients bucket {}", bucket).out;
  OwnOptions options =
      setup_.operation_options(std::string_view(tag, static_cast<std::size_t>(end - tag)));
  const bool wire = setup_.has_wire(setup_.layout.buckets[bucket].arena);
  if (!wire) {
    options.scale = plan_.scale;
    if (plan_.factor != 1) options.input_scale = plan_.factor;  // calls without one are remembered
  }
  options.stream = setup_.passes->stream();
  const Buffer buffer = setup_.travelling(bucket);
  Flight& flight = flights_[bucket];
  flight.launched = Clock::now();
  flight.work =
      setup_.communicator.all_reduce(buffer, buffer, wire ? ReduceOp::sum : plan_.op, options);
  if (!setup_.passes->ends_in_finish()) return;
  flight.work.on_done([end = &flight.ended](std::error_code) {
    end->store(Clock::now().time_since_epoch().count(), std::memory_order_release);
    end->notify_one();  // uses the address alone: a quick waiter may have freed the atomic
  });
}

void Launcher::start_usage() {
  collector_.put_given(used_);
  const Buffer buffer = buffer_of(std::span(used_));
  usage_work_ = setup_.communicator.all_reduce(buffer, buffer, ReduceOp::bit_or,
                                               setup_.operation_options("gradients in use"));
}

void Launcher::start_rest() {
  header_work_.wait();
  if (!header_arrived()) disagree();
  if (const auto bucket = collector_.take_role(header_work_)) run(*bucket);
  if (setup_.options.find_unused && !flights_.empty()) start_usage();
  if (tells_unused()) usage_work_.wait();
}

// Ranks that differ may wait in an operation that this rank never calls: for example in a batch
// norm layer that this rank evaluates and they train. The barrier finds out whether all ranks have
// come here. If they have, they compare where they are; if not, this rank tells them where it is.
void Launcher::disagree() {
  constexpr std::chrono::seconds patience{2};
  Work barrier = setup_.communicator.barrier(setup_.operation_options("gradients differ"));
  const bool all_here = barrier.wait_for(patience);
  lib::release_bulk(setup_.communicator, &setup_);  // the comparison is an operation of its own
  if (all_here)
    throw_disagreement(setup_.communicator, "gradient buckets", where(), Priority::bulk);
  const std::string text = fmt::format(
      "gradient buckets: ranks differ: rank {} {}; other ranks are not, and some of them did not "
      "call finish() within {} s",
      setup_.communicator.rank(), where(), patience.count());
  setup_.communicator.abort(Errc::aborted, text);
  throw Error(Errc::mismatch, text);
}

std::string Launcher::where() const {
  std::string text = fmt::format("is in step {}", collector_.step());
  if (check_ != 0) text += fmt::format(" with check {:#x}", check_);
  if (!plan_.same_buckets) text += " of " + setup_.title;
  return text;
}

Launcher::Clock::time_point Launcher::wait(std::size_t bucket, bool on_host) {
  Flight& flight = flights_[bucket];
  setup_.passes->await(flight.work, on_host);
  if (setup_.passes->ends_in_finish())
    // The thread that ended the bucket may not have written the time yet.
    flight.ended.wait(0, std::memory_order_acquire);
  else
    flight.ended.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  return ended_at(bucket);
}

bool Launcher::pending() const noexcept {
  return std::any_of(flights_.begin(), flights_.end(),
                     [](const Flight& flight) { return !flight.work.done(); });
}

// All at once: then the communicator has an operation for each bucket after the first step, however
// much overlaps in later ones.
void Launcher::release() {
  for (Flight& flight : flights_) flight.work = Work();
  header_work_ = Work();
  usage_work_ = Work();
}

}  // namespace rondo::grad
