// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/own_descriptors.h"
#include "base/text.h"
#include "lib/settings/variables.h"
#include "lib/split.h"
#include "lib/state.h"

namespace rondo {

namespace {

// op, root, counts: of operations that have them.
Work start(lib::CommunicatorState& state, Collective operation, const Buffer& in, const Buffer& out,
           const OpOptions& options, ReduceOp op = ReduceOp::sum, int root = 0,
           std::span<const std::size_t> counts = {}) {
  return state.collectives().start(
      {state.rank(), state.size(), operation, in, out, op, root, &options, counts});
}

}  // namespace

Communicator lib::connect_with(const Options& options, const lib::TransportFactory& transports) {
  base::leave_parent();
  settings::warn_about_variables();
  return Communicator(std::make_unique<lib::CommunicatorState>(options, transports));
}

Communicator Communicator::connect(const Options& options) {
  return lib::connect_with(options, lib::default_transports());
}

Communicator::Communicator(std::unique_ptr<lib::CommunicatorState> state)
    : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this == &other) return *this;
  const Communicator before(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}
// A forked child has nothing to end: it has no threads and no connections, and locks may be held
// for ever. Its copy is left as it is.
Communicator::~Communicator() {
  if (state_ && state_->in_other_process()) static_cast<void>(state_.release());
}

int Communicator::rank() const noexcept {
  return state_->rank();
}
int Communicator::size() const noexcept {
  return state_->size();
}
std::span<const int> Communicator::local_ranks() const noexcept {
  return state_->local_ranks();
}
std::string Communicator::address() const {
  return state_->routes().address();
}
std::chrono::milliseconds Communicator::deadline() const noexcept {
  return state_->options().deadline;
}

std::string Communicator::describe_peer(int peer) const {
  return state_->routes().describe_peer(peer);
}

std::string Communicator::algorithm(Collective operation, std::size_t count, DType type,
                                    int device) const {
  return std::string(
      schedules::name_of(state_->plans().choose(operation, count, type, device >= 0).algorithm));
}

std::string Communicator::describe(Collective operation, std::size_t count, DType type,
                                   int device) const {
  const plan::Plan plan = state_->plans().choose(operation, count, type, device >= 0);
  return fmt::format("{} over {}, segments of {}, {} in flight", schedules::name_of(plan.algorithm),
                     state_->routes().name(), base::describe_bytes(plan.segment_bytes), plan.depth);
}

Statistics Communicator::statistics() const {
  return state_->statistics();
}

PlanConstants Communicator::constants() const {
  return state_->constants();
}

Work Communicator::all_reduce(Buffer in, Buffer out, ReduceOp op, const OpOptions& options) {
  return start(*state_, Collective::all_reduce, in, out, options, op);
}

Work Communicator::reduce(Buffer in, Buffer out, ReduceOp op, int root, const OpOptions& options) {
  return start(*state_, Collective::reduce, in, out, options, op, root);
}

Work Communicator::broadcast(Buffer in, Buffer out, int root, const OpOptions& options) {
  return start(*state_, Collective::broadcast, in, out, options, ReduceOp::sum, root);
}

Work Communicator::all_gather(Buffer in, Buffer out, const OpOptions& options) {
  return start(*state_, Collective::all_gather, in, out, options);
}

Work Communicator::reduce_scatter(Buffer in, Buffer out, ReduceOp op, const OpOptions& options) {
  return start(*state_, Collective::reduce_scatter, in, out, options, op);
}

Work Communicator::gather(Buffer in, Buffer out, int root, const OpOptions& options) {
  return start(*state_, Collective::gather, in, out, options, ReduceOp::sum, root);
}

Work Communicator::scatter(Buffer in, Buffer out, int root, const OpOptions& options) {
  return start(*state_, Collective::scatter, in, out, options, ReduceOp::sum, root);
}

Work Communicator::all_to_all(Buffer in, Buffer out, const OpOptions& options) {
  return start(*state_, Collective::all_to_all, in, out, options);
}

Work Communicator::all_gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts,
                                const OpOptions& options) {
  return start(*state_, Collective::all_gather_v, in, out, options, ReduceOp::sum, 0, counts);
}

Work Communicator::reduce_scatter_v(Buffer in, Buffer out, std::span<const std::size_t> counts,
                                    ReduceOp op, const OpOptions& options) {
  return start(*state_, Collective::reduce_scatter_v, in, out, options, op, 0, counts);
}

Work Communicator::barrier(const OpOptions& options) {
  return start(*state_, Collective::barrier, {}, {}, options);
}

Work Communicator::send(Buffer in, int peer, std::uint32_t tag, const OpOptions& options) {
  return state_->messages().transfer(true, in, peer, tag, options);
}

Work Communicator::receive(Buffer out, int peer, std::uint32_t tag, const OpOptions& options) {
  return state_->messages().transfer(false, out, peer, tag, options);
}

Work Communicator::receive_any(Buffer out, std::uint32_t tag, const OpOptions& options) {
  return state_->messages().receive_any(out, tag, options);
}

Work Communicator::batch(std::span<const Transfer> transfers, const OpOptions& options) {
  return state_->messages().batch(transfers, options);
}

Work Communicator::all_to_all_v(Buffer in, std::span<const std::size_t> send_counts, Buffer out,
                                std::span<const std::size_t> receive_counts,
                                const OpOptions& options) {
  return state_->messages().all_to_all_v(in, send_counts, out, receive_counts, options);
}

std::optional<Communicator> Communicator::split(int color, int key) {
  auto state = rondo::lib::split(*state_, color, key, state_->next_split());
  if (!state) return std::nullopt;
  return Communicator(std::move(state));
}

Memory Communicator::allocate(std::size_t bytes, int device) {
  return state_->allocate(bytes, device);
}
Registration Communicator::register_memory(void* data, std::size_t bytes, int device) {
  return state_->register_memory(data, bytes, device);
}
std::string Communicator::dump(std::string_view path) const {
  return state_->dump(path);
}

void Communicator::abort(std::error_code why, std::string_view text) noexcept {
  state_->abort(why, text);
}
// The child has copies of the whole process, so all of them go at once.
void Communicator::abandon() noexcept {
  base::leave_parent();
}

}  // namespace rondo
