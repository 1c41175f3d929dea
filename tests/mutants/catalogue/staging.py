"""Bugs of values on their way between a device and the host."""

from mutants.planted import Edit, Mutant, drawn, test

STAGING = "client/mooncake_client/staging.py"
SENT = drawn("client/test_staging", "test_what_is_sent_is_what_lay_on_the_device")
CAME = drawn("client/test_staging", "test_what_came_lies_on_the_device")
ENDED = test("client/test_staging", "test_no_copy_is_under_way_after_a_call_that_failed")

MUTANTS = [
    Mutant(
        "sends-before-the-copy-arrived",
        "A part of a put is sent while its bytes may still be on the bus.",
        (Edit(STAGING, "            arrived()\n", ""),),
        (SENT,),
    ),
    Mutant(
        "stages-over-what-is-sent",
        "The next part of a put goes into the slab that is being sent.",
        (Edit(STAGING, "slabs[(index + 1) % 2]", "slabs[index % 2]"),),
        (SENT,),
    ),
    Mutant(
        "reads-over-what-is-copied",
        "A slab of a get is filled again before its bytes have reached the device.",
        (Edit(STAGING, "            left[index % 2]()\n", ""),),
        (CAME,),
    ),
    Mutant(
        "leaves-copies-under-way",
        "A call ends with an error while a copy into the caller's memory is under way.",
        (
            Edit(
                STAGING,
                "    finally:\n        link.drain()\n    return statuses, lengths",
                "    finally:\n        pass\n    link.drain()\n    return statuses, lengths",
            ),
            Edit(
                STAGING,
                "    finally:\n        link.drain()\n    return statuses\n",
                "    finally:\n        pass\n    link.drain()\n    return statuses\n",
            ),
        ),
        (ENDED,),
    ),
    Mutant(
        "copies-what-was-missed",
        "A value that was not read is copied over the target on the device.",
        (Edit(STAGING, "if offset is not None and status == 0", "if offset is not None"),),
        (CAME,),
    ),
]
