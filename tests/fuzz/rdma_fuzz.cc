// SPDX-License-Identifier: Apache-2.0
//
// Decodes what a peer says about an rdma link: its address, its messages over TCP, and its messages
// and marks over a queue pair. The first byte chooses. What decodes must encode to the same bytes.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "transports/rdma/address.h"
#include "transports/rdma/messages.h"

using namespace rondo;

namespace {

void expect_same(std::span<const std::byte> one, std::span<const std::byte> other) {
  if (!std::ranges::equal(one, other)) std::abort();
}

void try_address(std::span<const std::byte> input) {
  const auto address = rdma::decode_address(input);
  if (!address) return;
  expect_same(rdma::encode(*address), input);
  for (const rdma::PortAddress& port : address->ports)
    if (rdma::describe(port).empty()) std::abort();
  if (rdma::pair_ports(address->ports, address->ports).size() > rdma::most_paths) std::abort();
}

void try_ports(std::span<const std::byte> input) {
  const auto ports = rdma::decode_ports(input);
  if (ports) expect_same(rdma::encode(*ports), input);
}

void try_told(std::span<const std::byte> input) {
  rdma::Message message{};
  std::copy_n(input.begin(), std::min(input.size(), message.size()), message.begin());
  const auto told = rdma::decode(message);
  if (!told) return;
  // The bytes behind the contents mean nothing.
  constexpr std::size_t head = rdma::message_head_bytes, setup_head = 20, path = 16;
  const std::size_t length = told->notice == rdma::Notice::setup
                                 ? head + setup_head + path * told->setup.paths.size()
                                 : head + told->text.size();
  const rdma::Message again = rdma::encode(*told);
  expect_same(std::span(again).first(length), std::span(message).first(length));
}

void try_control(std::span<const std::byte> input) {
  std::uint64_t consumed = 0;
  std::array<rdma::Grant, rdma::most_grants_at_once> grants;
  const auto count = rdma::decode(input, consumed, grants);
  if (!count) return;
  rdma::ControlBytes bytes;
  const std::size_t length = rdma::encode(consumed, std::span(grants).first(*count), bytes);
  expect_same(std::span(bytes).first(length), input);
}

void try_mark(std::span<const std::byte> input) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, input.data(), std::min(input.size(), sizeof bits));
  const auto mark = rdma::decode_mark(bits);
  if (mark && rdma::encode(*mark) != bits) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (bytes == 0) return 0;
  const auto input = std::as_bytes(std::span(data, bytes)).subspan(1);
  switch (data[0] % 4) {
    case 0:
      try_address(input);
      try_ports(input);
      break;
    case 1:
      try_told(input);
      break;
    case 2:
      try_control(input);
      break;
    case 3:
      try_mark(input);
      break;
  }
  return 0;
}
