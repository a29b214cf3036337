//! The one call by which a confined process could still end one outside: `prlimit` on somebody else. Landlock keeps
//! signals in, but not this; and a daemon whose files may have no length, or that may open none, is as good as dead.
//!
//! A filter for system calls, written down here instruction by instruction, because a library's would also end every
//! program of the processor's older kind (32 bits), which agents may well start.

use seccompiler::sock_filter;

/// Where the kernel puts what a filter looks at (`struct seccomp_data`).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
const ARGUMENT_BYTES: u32 = 8;
const HALF_BYTES: u32 = 4;

/// Classic BPF, as far as it is needed here.
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
/// With EPERM, as if it were another user's process.
const REFUSE: u32 = 0x0005_0000 | 1;

/// The number of `prlimit64` by the kernel's name of the architecture: what runs here, and its 32 bits.
#[cfg(target_arch = "x86_64")]
const CALLS: [(u32, u32); 2] = [(0xc000_003e, 302), (0x4000_0003, 340)];
#[cfg(target_arch = "aarch64")]
const CALLS: [(u32, u32); 2] = [(0xc000_00b7, 261), (0x4000_0028, 369)];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const CALLS: [(u32, u32); 0] = [];

/// The bit by which x32, the third kind on `x86_64`, marks the same numbers.
const NOT_X32: u32 = !0x4000_0000;

/// Has this process, and all that it starts, set limits for itself only.
pub fn keep_limits_in() -> Result<(), String> {
    let failed = |why: String| format!("the agent can change limits of processes outside: {why}");
    if CALLS.is_empty() {
        return Err(failed("acpd has no seccomp filter for this processor".to_owned()));
    }
    seccompiler::apply_filter(&filter()).map_err(|error| failed(format!("seccomp: {error}")))
}

/// Refuses `prlimit64(process, _, new limit, _)` when there is a new limit, and a process that is not the caller itself.
fn filter() -> Vec<sock_filter> {
    let mut program = vec![load(ARCHITECTURE)];
    for (architecture, number) in CALLS {
        let body = [
            load(NUMBER),
            instruction(AND, NOT_X32, 0, 0),
            // To the end of the body, where it is allowed, or on.
            jump_if_equal(number, 0, 7),
            // A process id is the lower half, whatever is in the upper one.
            load(argument(0, Half::Lower)),
            jump_if_equal(0, 5, 0),
            load(argument(2, Half::Lower)),
            jump_if_equal(0, 0, 2),
            load(argument(2, Half::Upper)),
            jump_if_equal(0, 1, 0),
            instruction(RETURN, REFUSE, 0, 0),
            instruction(RETURN, ALLOW, 0, 0),
        ];
        program.push(jump_if_equal(architecture, 0, u8::try_from(body.len()).unwrap_or(u8::MAX)));
        program.extend(body);
    }
    program.push(instruction(RETURN, ALLOW, 0, 0));
    program
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Lower,
    Upper,
}

fn argument(index: u32, half: Half) -> u32 {
    let is_second = (half == Half::Upper) == cfg!(target_endian = "little");
    ARGUMENTS + index * ARGUMENT_BYTES + if is_second { HALF_BYTES } else { 0 }
}

fn load(offset: u32) -> sock_filter {
    instruction(LOAD, offset, 0, 0)
}

/// How many instructions are left out then, and else.
fn jump_if_equal(value: u32, then: u8, otherwise: u8) -> sock_filter {
    instruction(JUMP_IF_EQUAL, value, then, otherwise)
}

fn instruction(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOWER_BITS: u64 = 0xffff_ffff;

    /// What the filter says to a call: a small machine, so that no process need be locked up to ask.
    fn verdict(architecture: u32, number: u32, arguments: [u64; 4]) -> u32 {
        let word = |offset: u32| match offset {
            NUMBER => number,
            ARCHITECTURE => architecture,
            offset => {
                let (index, rest) = ((offset - ARGUMENTS) / ARGUMENT_BYTES, (offset - ARGUMENTS) % ARGUMENT_BYTES);
                let bytes = arguments[index as usize].to_ne_bytes();
                u32::from_ne_bytes(bytes[rest as usize..][..4].try_into().unwrap())
            }
        };
        let (program, mut at, mut value) = (filter(), 0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            match code {
                LOAD => value = word(k),
                AND => value &= k,
                JUMP_IF_EQUAL => at += usize::from(if value == k { jt } else { jf }),
                RETURN => return k,
                code => panic!("an unknown instruction: {code}"),
            }
        }
    }

    #[test]
    fn only_a_new_limit_for_somebody_else_is_refused() {
        for (architecture, number) in CALLS {
            for (arguments, expected) in [
                ([0, 7, 1, 1], ALLOW),
                ([12, 7, 0, 1], ALLOW),
                ([12, 7, 1, 1], REFUSE),
                ([12, 7, 1 << 40, 0], REFUSE),
                ([LOWER_BITS + 1, 7, 1, 0], ALLOW),
                ([LOWER_BITS + 13, 7, 1, 0], REFUSE),
            ] {
                assert_eq!(verdict(architecture, number, arguments), expected, "{architecture:x} {arguments:?}");
                assert_eq!(verdict(architecture, number + 1, arguments), ALLOW);
                assert_eq!(verdict(architecture + 1, number, arguments), ALLOW);
            }
        }
        #[cfg(target_arch = "x86_64")]
        assert_eq!(verdict(CALLS[0].0, CALLS[0].1 | !NOT_X32, [12, 7, 1, 0]), REFUSE, "x32");
    }
}
