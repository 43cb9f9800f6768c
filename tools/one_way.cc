// SPDX-License-Identifier: Apache-2.0
#include "tools/one_way.h"

#include <array>
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

OneWay::OneWay(Communicator& communicator, const Pattern& pattern, const Messages& messages,
               bool fresh, bool checked)
    : communicator_(communicator),
      pattern_(pattern),
      messages_(messages),
      fresh_(fresh),
      checked_(checked),
      works_(messages.count) {
  if (!fresh_) write(works_.size(), true, false);
}

Buffer OneWay::place(const Buffer& first, std::size_t message) const {
  Buffer buffer = first;
  if (buffer.data != nullptr) buffer.data = bytes_of(first) + message * messages_.distance;
  return buffer;
}

// Writes what this rank sends in an iteration, and poisons the places of what it receives.
void OneWay::write(std::size_t messages, bool sends, bool receives) {
  for (std::size_t message = 0; message < messages; ++message) {
    const Buffer in = place(messages_.in, message), out = place(messages_.out, message);
    ++written_;
    if (receives && checked_) pattern_.poison(bytes_of(out), 0, out.count, written_, peer());
    if (sends) pattern_.fill_input(bytes_of(in), 0, in.count, written_);
  }
}

double OneWay::stream() {
  if (fresh_) write(works_.size(), is_first(), !is_first());
  received_ = is_first() ? 0 : works_.size();
  if (!is_first())
    for (std::size_t message = 0; message < works_.size(); ++message)
      works_[message] = communicator_.receive(place(messages_.out, message), peer(), data_tag);
  communicator_.barrier().wait();
  const auto begin = Clock::now();
  if (is_first())
    for (std::size_t message = 0; message < works_.size(); ++message)
      works_[message] = communicator_.send(place(messages_.in, message), peer(), data_tag);
  for (Work& work : works_) work.wait();
  if (!is_first()) {
    communicator_.send(nothing, peer(), answer_tag).wait();
    return 0;
  }
  communicator_.receive(nothing, peer(), answer_tag).wait();
  return microseconds_since(begin) / static_cast<double>(works_.size());
}

void OneWay::round_trip(const Buffer& in, const Buffer& out) {
  if (is_first()) {
    const std::array transfers{Transfer{Transfer::Kind::receive, out, peer(), data_tag},
                               Transfer{Transfer::Kind::send, in, peer(), data_tag}};
    communicator_.batch(transfers).wait();
    return;
  }
  communicator_.receive(out, peer(), data_tag).wait();
  communicator_.send(in, peer(), data_tag).wait();
}

// The ranks leave the barrier at different times. The empty round trip brings them into step.
double OneWay::ping_pong() {
  if (fresh_) write(1, true, true);
  received_ = 1;
  communicator_.barrier().wait();
  round_trip(nothing, nothing);
  const auto begin = Clock::now();
  round_trip(messages_.in, messages_.out);
  return is_first() ? microseconds_since(begin) / 2 : 0;
}

std::uint64_t OneWay::count_wrong() const {
  if (!checked_) return 0;
  std::uint64_t wrong = 0;
  for (std::size_t message = 0; message < received_; ++message) {
    const Buffer out = place(messages_.out, message);
    wrong += pattern_.count_wrong(bytes_of(out), 0, out.count, written_ - received_ + message + 1,
                                  peer());
  }
  return wrong;
}

}  // namespace rondo::tools
