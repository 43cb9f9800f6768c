// SPDX-License-Identifier: Apache-2.0
//
// The life of a link: closed, opening, preparing, open, broken. What came before the end is
// delivered first, so a link breaks only when the completions from before it have been taken.
#include "transports/rdma/link.h"

#include <endian.h>
#include <fmt/format.h>

#include <algorithm>

#include "transports/rdma/failures.h"

namespace rondo::rdma {

RdmaLink::~RdmaLink() {
  if (generation_ == base::process_generation()) close_connection();
}

void RdmaLink::close_connection() noexcept {
  if (!conversation_) return;
  owner_.connections().forget(conversation_.socket());
  conversation_.close();
}

transports::Send RdmaLink::send(const transports::HeaderBytes& header,
                                std::span<const std::byte> payload) {
  if (state_ == State::open && !bye_) return outgoing_.send(header, payload);
  if (state_ == State::closed) {
    state_ = State::opening;
    owner_.connections().open(peer(), static_cast<int>(lane()));
  }
  return transports::Send::full;
}

void RdmaLink::attach(connect::Event& event) {
  if (state_ == State::broken) return owner_.connections().forget(event.socket.get());
  rename(std::move(event.name));
  conversation_.attach(std::move(event.socket), event.agreed);
  state_ = State::preparing;
  try {
    owner_.watch(*this, conversation_.socket());
    prepare();
  } catch (const Error& error) {
    fail(Errc::system, error.what());
  }
}

// Makes this end and tells the peer of it. Receives are posted before the peer can send.
void RdmaLink::prepare() {
  const std::size_t slots = shape_.count * (slot_head_bytes + shape_.bytes);
  const std::size_t messages = Path::receive_depth * control_bytes;
  pages_ = std::make_unique<base::Pages>(slots + messages);
  region_ = std::make_unique<MemoryRegion>(owner_.devices(), pages_->memory(),
                                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  paths_ = owner_.make_paths(*this);
  Told told{Notice::setup, 0, {}};
  told.setup.slot_bytes = shape_.bytes;
  told.setup.slots = shape_.count;
  told.setup.slots_address = reinterpret_cast<std::uintptr_t>(pages_->memory().data());
  for (const auto& path : paths_) {
    const std::size_t device = path->device_index();
    const bool first = path == paths_.front();
    path->post_receives(first ? pages_->memory().subspan(slots) : std::span<std::byte>{},
                        region_->keys().local[device]);
    told.setup.paths.push_back(path->setup(region_->keys().remote[device]));
  }
  incoming_.open(pages_->memory().first(slots), shape_.bytes, shape_.count, *paths_.front());
  conversation_.tell(told);
}

void RdmaLink::read_conversation() {
  // A peer sends at most three messages: setup, ready, then bye or failed. The fourth read sees the
  // end of the connection.
  for (int i = 0; i < 4; ++i) {
    const auto told = conversation_.read_message();
    if (!told) return;
    heard(*told);
  }
}

void RdmaLink::heard(const Told& told) {
  const auto out_of_turn = [&] {
    fail(Errc::corrupt, "its messages come in an order that is not possible");
  };
  switch (told.notice) {
    case Notice::setup:
      if (state_ != State::preparing || !theirs_.paths.empty()) return out_of_turn();
      return join(told.setup);
    case Notice::ready:
      if (state_ != State::preparing || theirs_.paths.empty()) return out_of_turn();
      outgoing_.open(theirs_, paths_);
      state_ = State::open;
      return;
    case Notice::bye:
      bye_ = told.value;
      return;
    case Notice::failed:
      told_ = fmt::format("the other end gave the link up and said: \"{}\"", told.text);
      return;
  }
}

void RdmaLink::join(const LinkSetup& theirs) {
  if (theirs.paths.size() != paths_.size())
    return fail(Errc::corrupt,
                fmt::format("it wants {} queue pairs for this link, and this rank {}: give all "
                            "ranks the same settings",
                            theirs.paths.size(), paths_.size()));
  theirs_ = theirs;
  try {
    for (std::size_t i = 0; i < paths_.size(); ++i)
      owner_.connect_path(*this, i, *paths_[i], theirs.paths[i]);
  } catch (const Error& error) {
    return fail(Errc::system, error.what());
  }
  conversation_.tell({Notice::ready, 0, {}});
}

void RdmaLink::completed(Path& path, const ibv_wc& completion) {
  if (state_ == State::broken) return;
  if (completion.status == IBV_WC_WR_FLUSH_ERR) {
    flushed_work_ = true;
    return;
  }
  if (completion.status != IBV_WC_SUCCESS)
    return fail(Errc::peer_lost, describe_failure(completion, path));
  const auto number = static_cast<std::uint32_t>(completion.wr_id);
  if ((completion.wr_id & Path::receive_bit) == 0)
    return path.complete(number, [&](const Posted& one) { outgoing_.released(one); });
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    ++arrived_;
    const auto mark = incoming_.arrived(be32toh(completion.imm_data));
    if (mark && mark->consumed && &path == paths_.front().get()) outgoing_.heard(*mark->consumed);
  } else {
    std::uint64_t consumed = 0;
    std::array<Grant, most_grants_at_once> grants;
    const std::size_t bytes = std::min<std::size_t>(completion.byte_len, control_bytes);
    const auto count = number < Path::receive_depth && &path == paths_.front().get()
                           ? decode(path.message(number).first(bytes), consumed, grants)
                           : std::nullopt;
    if (!count) return fail(Errc::corrupt, "its message to a sender cannot be read");
    outgoing_.heard(consumed, std::span(grants).first(*count));
  }
  try {
    path.receive_again(number);
  } catch (const Error& error) {
    fail(Errc::system, error.what());
  }
}

void RdmaLink::fail(Errc code, std::string what) {
  if (!failure_ && state_ != State::broken) failure_ = Failure{code, std::move(what)};
}

void RdmaLink::port_failed(std::size_t device, std::uint8_t port, const std::string& what) {
  for (const auto& path : paths_)
    if (path->device_index() == device && (port == 0 || path->port().number == port))
      return fail(Errc::peer_lost, fmt::format("{}: {}", path->route(), what));
}

void RdmaLink::queue_pair_failed(std::size_t device, std::uint32_t number,
                                 const std::string& what) {
  for (const auto& path : paths_)
    if (path->device_index() == device && path->queue_pair_number() == number)
      return fail(Errc::peer_lost, fmt::format("{}: {}", path->route(), what));
}

// True while completions from before the end of the link may not have been taken.
bool RdmaLink::draining() {
  const bool all_come = bye_ && arrived_ >= *bye_;
  if (all_come || !(failure_ || told_ || flushed_work_ || conversation_.end())) return false;
  if (!due_) due_ = owner_.drains() + 1;
  return owner_.drains() < *due_;
}

// How the link ends, if it does. What came before the end is delivered first. A closed connection
// is a better cause than a queue pair without an answer: the peer's process has ended. A peer that
// sent its cause has not ended, so its cause counts.
std::optional<Conversation::End> RdmaLink::ending() {
  if (failure_ || flushed_work_) read_conversation();
  if (draining()) return std::nullopt;
  const bool delivered =
      state_ != State::open || incoming_.empty() || (incoming_.stuck() && outgoing_.waiting());
  if (bye_ && incoming_.pieces() >= *bye_ && incoming_.at_boundary() && !outgoing_.waiting())
    return Conversation::End{Errc::peer_left, "the peer closed the connection", true};
  if (failure_ && failure_->code != Errc::peer_lost)
    return Conversation::End{failure_->code, failure_->what, false};
  if (!delivered) return std::nullopt;
  const auto& end = conversation_.end();
  if (bye_ && (failure_ || end))
    return Conversation::End{Errc::peer_lost,
                             "the peer closed the connection in the middle of a frame", false};
  if (bye_) return std::nullopt;
  if (told_)
    return Conversation::End{
        Errc::peer_lost, failure_ ? fmt::format("{}; {}", failure_->what, *told_) : *told_, false};
  if (end) return Conversation::End{end->code, end->what, false};
  if (failure_) return Conversation::End{failure_->code, failure_->what, false};
  if (!flushed_work_) return std::nullopt;
  return Conversation::End{Errc::peer_lost,
                           fmt::format("{}: the queue pair went into the error state",
                                       paths_.empty() ? describe() : paths_.front()->route()),
                           false};
}

// Most links have no news in most passes of a driver that awaits one peer.
bool RdmaLink::quiet() const noexcept {
  return state_ == State::open && outgoing_.idle() && incoming_.idle() &&
         !conversation_.flagged() && !conversation_.end() && !failure_ && !told_ &&
         !flushed_work_ && !bye_;
}

bool RdmaLink::progress() {
  if (state_ == State::broken || state_ == State::closed) return false;
  if (quiet()) return incoming_.look_ahead(*this);
  bool moved = false;
  if (conversation_.flagged()) {
    const State before = state_;
    read_conversation();
    moved = state_ != before;
  }
  // Before that the queue pairs cannot send, or the peer's cannot receive. Pieces wait in the
  // slots.
  if (state_ == State::open) {
    moved |= outgoing_.pump(*this);
    if (state_ == State::broken) return true;
    moved |= incoming_.pump(*this);
    if (state_ == State::broken) return true;
  }
  if (!incoming_.misuse().empty()) {
    break_off(Errc::system, incoming_.misuse(), false);
    return true;
  }
  if (const auto& fault = incoming_.fault()) fail(fault->code, fault->what);
  if (const auto& fault = outgoing_.fault()) fail(fault->code, fault->what);
  const auto end = ending();
  if (!end) return moved;
  break_off(end->code, end->what, end->closed && end->code == Errc::peer_left);
  return true;
}

bool RdmaLink::ready() {
  if (state_ == State::broken || state_ == State::closed) return false;
  if (conversation_.flagged()) return true;
  if (state_ == State::open && (incoming_.ready() || outgoing_.ready())) return true;
  return incoming_.fault() || outgoing_.fault() || ending().has_value() || draining();
}

void RdmaLink::break_off(Errc code, std::string_view what, bool clean) {
  state_ = State::broken;
  outgoing_.halt();
  incoming_.halt();
  // The device reads and writes nothing of this link any more, and the peer sees its end.
  for (const auto& path : paths_)
    path->abandon([&](const Posted& one) { outgoing_.released(one); });
  if (!clean && conversation_) conversation_.tell({Notice::failed, 0, {}, std::string(what)});
  close_connection();
  sink().broken(*this, code, what, clean);
}

void RdmaLink::halt() noexcept {
  state_ = State::broken;
  outgoing_.halt();
  incoming_.halt();
  for (const auto& path : paths_) path->destroy();
}

void RdmaLink::flush() {
  if (state_ != State::open) return;
  for (std::size_t i = 0; i < paths_.size(); ++i)
    if (!paths_[i]->idle() &&
        paths_[i]->post_flush(theirs_.slots_address, theirs_.paths[i].slots_key) != 0)
      fail(Errc::system, "the device takes no more requests");
}

bool RdmaLink::flushed() noexcept {
  if (state_ != State::open || failure_ || flushed_work_) return true;
  if (conversation_.end()) return true;
  return std::ranges::all_of(paths_, [](const auto& path) { return path->idle(); });
}

void RdmaLink::say_bye() {
  if ((state_ == State::open || state_ == State::preparing) && !failure_)
    conversation_.tell({Notice::bye, outgoing_.pieces(), {}});
}

std::string RdmaLink::describe_paths() const {
  std::string text;
  for (const auto& path : paths_)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", path->route());
  return text;
}

}  // namespace rondo::rdma
