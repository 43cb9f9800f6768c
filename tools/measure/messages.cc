// SPDX-License-Identifier: Apache-2.0
#include "tools/measure/messages.h"

#include <chrono>

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t data_tag = 0, answer_tag = 1;
constexpr Buffer nothing{};

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

}  // namespace

Messages::Messages(Communicator& communicator, const Pattern& pattern, const Role& role,
                   const Window& window, const Place& place, bool fresh, bool checked)
    : communicator_(communicator),
      pattern_(pattern),
      role_(role),
      window_(window),
      place_(place),
      fresh_(fresh),
      checked_(checked),
      sends_(role.sends ? window.count : 0),
      receives_(role.receives ? window.count : 0) {
  if (!fresh_) write(window_.count, true, false);
}

Buffer Messages::place(const Buffer& first, std::size_t message) const {
  Buffer buffer = first;
  if (buffer.data != nullptr) buffer.data = bytes_of(first) + message * window_.distance;
  return buffer;
}

// The bytes of so many messages, with what lies between them.
std::size_t Messages::bytes_of_first(std::size_t messages) const {
  const std::size_t bytes = window_.in.count * size_of(window_.in.type);
  return bytes == 0 ? 0 : bytes + (messages - 1) * window_.distance;
}

// Writes what this rank sends in an iteration, and poisons the places of what it receives.
void Messages::write(std::size_t messages, bool sends, bool receives) {
  for (std::size_t message = 0; message < messages; ++message) {
    const Buffer in = place(window_.in, message), out = place(window_.out, message);
    ++written_;
    if (receives && checked_)
      pattern_.poison(place_.out.host(bytes_of(out)), 0, out.count, written_, role_.peer);
    if (sends) pattern_.fill_input(place_.in.host(bytes_of(in)), 0, in.count, written_);
  }
  const std::size_t bytes = bytes_of_first(messages);
  if (bytes == 0) return;
  if (sends) place_.in.bring_to_gpu(bytes);
  if (receives && checked_) place_.out.bring_to_gpu(bytes);
}

double Messages::window() {
  if (fresh_) write(window_.count, role_.sends, role_.receives);
  received_ = receives_.size();
  for (std::size_t message = 0; message < receives_.size(); ++message)
    receives_[message] =
        communicator_.receive(place(window_.out, message), role_.peer, data_tag, place_.options);
  communicator_.barrier().wait();
  const auto begin = Clock::now();
  for (std::size_t message = 0; message < sends_.size(); ++message)
    sends_[message] =
        communicator_.send(place(window_.in, message), role_.peer, data_tag, place_.options);
  for (Work& work : receives_) work.wait();
  for (Work& work : sends_) work.wait();
  if (role_.receives) communicator_.send(nothing, role_.peer, answer_tag).wait();
  if (!role_.sends) return 0;
  communicator_.receive(nothing, role_.peer, answer_tag).wait();
  return microseconds_since(begin) / static_cast<double>(window_.count);
}

void Messages::round_trip(const Buffer& in, const Buffer& out) {
  if (communicator_.rank() < role_.peer) {
    communicator_.send(in, role_.peer, data_tag, place_.options).wait();
    communicator_.receive(out, role_.peer, data_tag, place_.options).wait();
    return;
  }
  communicator_.receive(out, role_.peer, data_tag, place_.options).wait();
  communicator_.send(in, role_.peer, data_tag, place_.options).wait();
}

// The ranks leave the barrier at different times. The empty round trip brings them into step.
double Messages::ping_pong() {
  if (fresh_) write(1, true, true);
  received_ = 1;
  communicator_.barrier().wait();
  round_trip(nothing, nothing);
  const auto begin = Clock::now();
  round_trip(window_.in, window_.out);
  return communicator_.rank() < role_.peer ? microseconds_since(begin) / 2 : 0;
}

std::uint64_t Messages::count_wrong() {
  if (!checked_ || received_ == 0) return 0;
  place_.out.bring_to_host(bytes_of_first(received_));
  std::uint64_t wrong = 0;
  for (std::size_t message = 0; message < received_; ++message) {
    const Buffer out = place(window_.out, message);
    wrong += pattern_.count_wrong(place_.out.host(bytes_of(out)), 0, out.count,
                                  written_ - received_ + message + 1, role_.peer);
  }
  return wrong;
}

}  // namespace rondo::tools
