if __name__ == "trainer":  # of a script in the repository's folder
    from fedplcc.shared.importing import take_one_name

    take_one_name()
