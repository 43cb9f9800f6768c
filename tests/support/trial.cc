// SPDX-License-Identifier: Apache-2.0
#include "support/trial.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "collectives/schedules/call.h"
#include "support/values.h"

namespace rondo::testing {

namespace {

constexpr std::size_t margin = 64;  // bytes around a buffer
constexpr std::byte untouched{0xa5};

// Makes memory for `bytes` with margins. All of it is `untouched`.
transports::Blob with_margins(std::size_t bytes) {
  return transports::Blob(bytes + 2 * margin, untouched);
}

bool margins_intact(const transports::Blob& memory) {
  const auto good = [](std::byte b) { return b == untouched; };
  const auto middle = static_cast<std::ptrdiff_t>(margin);
  return memory.empty() || (std::all_of(memory.begin(), memory.begin() + middle, good) &&
                            std::all_of(memory.end() - middle, memory.end(), good));
}

}  // namespace

Collective some_operation(std::uint64_t number) noexcept {
  Collective operation{};
  do {
    operation = static_cast<Collective>(number++ % collective_count);
  } while (!schedules::has_schedules(operation));
  return operation;
}

std::vector<std::size_t> counts_of(const Case& what, int size) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(size), what.count);
  for (std::size_t rank = 0; schedules::has_counts(what.operation) && rank < counts.size(); ++rank)
    counts[rank] = what.count * (mixed(what.count, rank) % 4) / 2;
  return counts;
}

std::string describe(const Case& what) {
  std::string text = std::string(name_of(what.operation));
  if (what.operation != Collective::barrier)
    text.append(" of ").append(std::to_string(what.count)).append(" ").append(name_of(what.type));
  if (schedules::is_reducing(what.operation)) text.append(" ").append(name_of(what.op));
  if (schedules::has_root(what.operation)) text.append(" root ").append(std::to_string(what.root));
  if (what.scale) text.append(" times ").append(std::to_string(*what.scale));
  if (what.in_place) text += " in place";
  if (what.priority == Priority::urgent) text += ", urgent";
  return text;
}

Trial::Trial(const Case& what, int rank, int size)
    : case_(what),
      rank_(rank),
      size_(size),
      in_place_(what.in_place && has_input() && has_output()) {
  if (case_.operation == Collective::barrier) return;
  count_elements();
  if (in_place_) {
    if (gathers())
      in_offset_ = before_;
    else if (schedules::is_blocked(case_.operation) && case_.operation != Collective::all_to_all)
      out_offset_ = before_;
    out_ = with_margins(std::max(in_count_, out_count_) * element_bytes());
  } else {
    if (has_input()) in_ = with_margins(in_count_ * element_bytes());
    if (has_output()) out_ = with_margins(out_count_ * element_bytes());
  }
  if (has_input() && in_count_ != 0)
    tile(static_cast<std::byte*>(input().data), contribution(case_.type, case_.op, rank),
         element_bytes(), 0, in_count_);
}

void Trial::count_elements() {
  counts_ = counts_of(case_, size_);
  const auto own = counts_.begin() + rank_;
  before_ = std::accumulate(counts_.begin(), own, std::size_t{0});
  const std::size_t all = std::accumulate(own, counts_.end(), before_);
  in_count_ = out_count_ = schedules::is_blocked(case_.operation) ? all : case_.count;
  if (case_.operation == Collective::all_to_all) return;
  if (schedules::is_blocked(case_.operation)) (gathers() ? in_count_ : out_count_) = *own;
}
// Whether the output has a block from each rank. False for all_to_all.
bool Trial::gathers() const noexcept {
  return schedules::without_counts(case_.operation) == Collective::all_gather ||
         case_.operation == Collective::gather;
}
bool Trial::has_input() const noexcept {
  return (case_.operation != Collective::broadcast && case_.operation != Collective::scatter) ||
         is_root();
}
bool Trial::has_output() const noexcept {
  return (case_.operation != Collective::reduce && case_.operation != Collective::gather) ||
         is_root();
}

Buffer Trial::buffer(transports::Blob& memory, std::size_t offset, std::size_t count) noexcept {
  std::byte* const placed = &memory == &in_ ? placed_in_ : placed_out_;
  std::byte* const start = placed != nullptr ? placed : memory.data();
  return {count == 0 ? nullptr : start + margin + offset * element_bytes(), count, case_.type,
          copier_ != nullptr ? copier_->gpu().ordinal() : -1};
}

Buffer Trial::input() noexcept {
  if (!has_input()) return {nullptr, case_.in_place ? in_count_ : 0, case_.type};
  return buffer(in_place_ ? out_ : in_, in_offset_, in_count_);
}

// Where this rank's output is ignored it is null, so that any use of it fails.
Buffer Trial::output() noexcept {
  if (!has_output()) return {nullptr, case_.in_place ? out_count_ : 0, case_.type};
  return buffer(out_, out_offset_, out_count_);
}

void Trial::register_memory(Communicator& communicator) {
  if (!in_.empty()) in_registration_ = communicator.register_memory(in_.data(), in_.size());
  if (!out_.empty()) out_registration_ = communicator.register_memory(out_.data(), out_.size());
}

void Trial::place_on(GpuCopier& copier) {
  if (bytes() != 0) gpu_memory_.emplace(copier.gpu(), bytes());
  place_at(copier, bytes() != 0 ? gpu_memory_->address() : 0);
}

void Trial::place_at(GpuCopier& copier, device::Address memory) {
  copier_ = &copier;
  place_at(reinterpret_cast<std::byte*>(memory));
}

void Trial::place_at(std::byte* memory) {
  for (auto [buffer, placed] : {std::pair(&in_, &placed_in_), std::pair(&out_, &placed_out_)}) {
    if (buffer->empty()) continue;
    *placed = memory;
    if (copier_ != nullptr)
      copier_->write(reinterpret_cast<device::Address>(memory), *buffer);
    else
      std::ranges::copy(*buffer, memory);
    memory += buffer->size();
  }
}

// Copies the buffers back from where they were placed.
void Trial::fetch() {
  for (auto [buffer, placed] : {std::pair(&in_, placed_in_), std::pair(&out_, placed_out_)}) {
    if (placed == nullptr) continue;
    if (copier_ != nullptr)
      copier_->read(*buffer, reinterpret_cast<device::Address>(placed));
    else
      std::copy_n(placed, buffer->size(), buffer->begin());
  }
}

void Trial::start(Communicator& communicator) {
  OpOptions options = options_;
  options.scale = case_.scale;
  options.priority = case_.priority;
  switch (case_.operation) {
    case Collective::all_reduce:
      work_ = communicator.all_reduce(input(), output(), case_.op, options);
      return;
    case Collective::reduce:
      work_ = communicator.reduce(input(), output(), case_.op, case_.root, options);
      return;
    case Collective::broadcast:
      work_ = communicator.broadcast(input(), output(), case_.root, options);
      return;
    case Collective::all_gather:
      work_ = communicator.all_gather(input(), output(), options);
      return;
    case Collective::reduce_scatter:
      work_ = communicator.reduce_scatter(input(), output(), case_.op, options);
      return;
    case Collective::barrier:
      work_ = communicator.barrier(options);
      return;
    case Collective::gather:
      work_ = communicator.gather(input(), output(), case_.root, options);
      return;
    case Collective::scatter:
      work_ = communicator.scatter(input(), output(), case_.root, options);
      return;
    case Collective::all_to_all:
      work_ = communicator.all_to_all(input(), output(), options);
      return;
    case Collective::all_gather_v:
      work_ = communicator.all_gather_v(input(), output(), std::vector(counts_), options);
      return;
    case Collective::reduce_scatter_v:
      work_ =
          communicator.reduce_scatter_v(input(), output(), std::vector(counts_), case_.op, options);
      return;
    default:
      throw std::runtime_error(describe(case_) + ": not an operation of all ranks");
  }
}

std::string Trial::problem() {
  fetch();
  if (const std::string wrong = wrong_output(); !wrong.empty())
    return describe(case_) + ": " + wrong;
  return what_is_damaged();
}

std::string Trial::wrong_output() const {
  if (case_.operation == Collective::barrier || !has_output()) return {};
  const std::byte* out = out_.data() + margin + out_offset_ * element_bytes();
  if (gathers() || case_.operation == Collective::all_to_all) return wrong_blocks(out);
  const std::size_t first = schedules::is_blocked(case_.operation) ? before_ : 0;
  const transports::Blob& expected = schedules::is_reducing(case_.operation)
                                         ? reduction(case_.type, case_.op, size_, case_.scale)
                                         : contribution(case_.type, case_.op, case_.root);
  return difference(out, expected, element_bytes(), first, out_count_);
}

// Checks the block from each rank: its only one, or in an all_to_all the one for this rank.
std::string Trial::wrong_blocks(const std::byte* out) const {
  const std::size_t first = gathers() ? 0 : before_;
  for (int from = 0; from < size_; ++from) {
    const std::size_t count = counts_[static_cast<std::size_t>(from)];
    const auto wrong =
        difference(out, contribution(case_.type, case_.op, from), element_bytes(), first, count);
    if (!wrong.empty()) return "of the block of rank " + std::to_string(from) + " " + wrong;
    out += count * element_bytes();
  }
  return {};
}

std::string Trial::damage() {
  fetch();
  return what_is_damaged();
}

std::string Trial::what_is_damaged() const {
  if (!margins_intact(in_) || !margins_intact(out_))
    return describe(case_) + ": bytes around a buffer have changed";
  if (in_.empty()) return {};
  const auto changed = difference(in_.data() + margin, contribution(case_.type, case_.op, rank_),
                                  element_bytes(), 0, in_count_);
  return changed.empty() ? changed : describe(case_) + ": the input has changed: " + changed;
}

void Trial::run(Communicator& communicator, const Case& what) {
  Trial trial(what, communicator.rank(), communicator.size());
  trial.start(communicator);
  trial.work().wait();
  if (const std::string problem = trial.problem(); !problem.empty())
    throw std::runtime_error(problem);
}

}  // namespace rondo::testing
