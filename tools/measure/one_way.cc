// SPDX-License-Identifier: Apache-2.0
#include "tools/measure/one_way.h"

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
               const Place& place, bool fresh, bool checked)
    : communicator_(communicator),
      pattern_(pattern),
      messages_(messages),
      place_(place),
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

// The bytes of so many messages, with what lies between them.
std::size_t OneWay::bytes_of_first(std::size_t messages) const {
  const std::size_t bytes = messages_.in.count * size_of(messages_.in.type);
  return bytes == 0 ? 0 : bytes + (messages - 1) * messages_.distance;
}

// Writes what this rank sends in an iteration, and poisons the places of what it receives.
void OneWay::write(std::size_t messages, bool sends, bool receives) {
  for (std::size_t message = 0; message < messages; ++message) {
    const Buffer in = place(messages_.in, message), out = place(messages_.out, message);
    ++written_;
    if (receives && checked_)
      pattern_.poison(place_.out.host(bytes_of(out)), 0, out.count, written_, peer());
    if (sends) pattern_.fill_input(place_.in.host(bytes_of(in)), 0, in.count, written_);
  }
  const std::size_t bytes = bytes_of_first(messages);
  if (bytes == 0) return;
  if (sends) place_.in.bring_to_gpu(bytes);
  if (receives && checked_) place_.out.bring_to_gpu(bytes);
}

double OneWay::stream() {
  if (fresh_) write(works_.size(), is_first(), !is_first());
  received_ = is_first() ? 0 : works_.size();
  if (!is_first())
    for (std::size_t message = 0; message < works_.size(); ++message)
      works_[message] =
          communicator_.receive(place(messages_.out, message), peer(), data_tag, place_.options);
  communicator_.barrier().wait();
  const auto begin = Clock::now();
  if (is_first())
    for (std::size_t message = 0; message < works_.size(); ++message)
      works_[message] =
          communicator_.send(place(messages_.in, message), peer(), data_tag, place_.options);
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
    communicator_.batch(transfers, place_.options).wait();
    return;
  }
  communicator_.receive(out, peer(), data_tag, place_.options).wait();
  communicator_.send(in, peer(), data_tag, place_.options).wait();
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

std::uint64_t OneWay::count_wrong() {
  if (!checked_ || received_ == 0) return 0;
  place_.out.bring_to_host(bytes_of_first(received_));
  std::uint64_t wrong = 0;
  for (std::size_t message = 0; message < received_; ++message) {
    const Buffer out = place(messages_.out, message);
    wrong += pattern_.count_wrong(place_.out.host(bytes_of(out)), 0, out.count,
                                  written_ - received_ + message + 1, peer());
  }
  return wrong;
}

}  // namespace rondo::tools
